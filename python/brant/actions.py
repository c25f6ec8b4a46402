# SPDX-License-Identifier: Apache-2.0
"""What makes a DataFrame run: showing, collecting, converting, iterating, writing."""
from __future__ import annotations

import os

from brant import display, plan
from brant import session as _session
from brant.errors import Error
from brant.literal import literal, quote, string, type_name
from brant.plan import invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

    from brant._types import Any, Callable, Columns, Iterator, Path
    from brant.dataframe import DataFrame
    from brant.session import Session

SHOWN_ROWS = 8
BATCH_ROWS = 8192


class Actions:
    """The methods of DataFrame that run it."""

    if TYPE_CHECKING:  # what DataFrame has
        _own_session: Session | None
        _node: Any
        _table: Any
        limit: Callable[..., DataFrame]
        agg: Callable[..., DataFrame]

    @property
    def session(self) -> Session:
        """The session that it runs in: its own, or the default one."""
        return self._own_session or _session.default()

    def sql(self) -> str:
        """The query, as SQL."""
        return plan.to_sql(self._node, self.session)

    def explain(self, analyze: bool = False) -> str:
        """The stages of the query, as text; analyze runs it and adds what was measured."""
        plan.prepare(self.session, self._node)
        return display.Text(self.session.explain(self.sql(), analyze))

    def _run(self):
        """The Result of the query, started."""
        plan.prepare(self.session, self._node)
        result = self.session.execute(self.sql())
        result.reads = self._node  # what is in memory stays as long as it is read
        return result

    # ---- looking at it

    def show(self, n: int = SHOWN_ROWS, truncate: bool | int = True) -> None:
        """Print the first n rows. truncate: how many characters of a value are shown; False: all, and all columns."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise invalid(f"show() takes a number of rows, 0 or more, not {n!r}")
        print(self._preview(n, truncate))

    def _preview(self, n=SHOWN_ROWS, truncate=True):
        if self._table is not None:
            return display.Preview(self._table.slice(0, n), self._types(self._table), self._table.num_rows, truncate)
        from brant import rows as reading
        rows = reading.read(self.limit(n + 1)._run())
        there = rows.num_rows if rows.num_rows <= n else self.count_rows() if self.is_kept else None
        return display.Preview(rows.slice(0, n), self._types(rows), there, truncate)

    def _types(self, table):
        """Types as they are shown: DuckDB's if they are known already, else those of the Arrow columns under DuckDB's names."""
        known = self._node.known_types()
        if known is not None:
            return known
        return table.types if hasattr(table, "types") else [_shown_type(f.type) for f in table.schema]

    def __repr__(self):
        return str(self._preview()) if self._table is not None or self.is_kept else display.schema_text(self.schema)

    def _repr_html_(self):
        return self._preview().html() if self._table is not None or self.is_kept else display.schema_html(self.schema)

    # ---- all rows

    def persist(self) -> DataFrame:
        """Run it and keep its rows where they are made: in parts on the workers (in this process, where it runs here). This frame, and those
        made from it afterwards, read them instead of running it again; what is lost with a worker is made again. The rows are dropped
        when the last of these frames is gone, or by unpersist()."""
        if self._table is None and not self.is_kept:
            from brant import io
            kept = io.Kept(self._node)
            kept.from_text(self.session)
            self._node = kept
        return self  # type: ignore[return-value]  # which is a DataFrame

    collect = persist

    def unpersist(self) -> DataFrame:
        """Drop the rows that persist() keeps. This frame and those made from it run its query again when they need it."""
        if self.is_kept:
            self._node.release()
            self._node = self._node.node
        return self  # type: ignore[return-value]

    @property
    def is_kept(self) -> bool:
        """Are its rows kept by persist()?"""
        return getattr(self._node, "release", None) is not None

    def to_arrow(self) -> pa.Table:
        """All rows as a pyarrow.Table."""
        return self._table if self._table is not None else self._run().arrow()

    def to_arrow_iter(self) -> Iterator[pa.RecordBatch]:
        """The rows as pyarrow.RecordBatches, as they are ready."""
        return iter(self._table.to_batches()) if self._table is not None else self._run().batches()

    def __arrow_c_stream__(self, requested_schema=None):
        """The rows as an Arrow C stream, without a copy."""
        from brant import io
        if self._table is not None:
            return self._table.__arrow_c_stream__(requested_schema)
        result = self._run()
        io.pin(self.session, self._node)  # the capsule can't hold it
        return result.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self):
        """The columns as an Arrow C schema; runs the query for no rows."""
        return self.limit(0).to_arrow().schema.__arrow_c_schema__()

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """All rows as a pandas.DataFrame; options go to pyarrow's to_pandas."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """All rows as a polars.DataFrame."""
        import polars
        return polars.from_arrow(self.to_arrow())

    def to_pydict(self) -> dict[str, list[Any]]:
        """All rows as a dict of lists."""
        return self.to_arrow().to_pydict()

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as a list of dicts."""
        return self.to_arrow().to_pylist()

    def item(self) -> Any:
        """The one value of a frame with one row and one column."""
        t = self.limit(2).to_arrow()
        if (t.num_rows, t.num_columns) != (1, 1):
            rows = "more than 1" if t.num_rows > 1 else t.num_rows
            raise invalid(f"item() needs one row and one column; there are {rows} rows and {t.num_columns} columns")
        return t.column(0)[0].as_py()

    def count_rows(self) -> int:
        """How many rows there are."""
        if self._table is not None:
            return self._table.num_rows
        from brant.expr import call, col
        known = self._node.rows if self.is_kept else None
        if known is None:
            known = self.agg(call("count", col("*")).alias("n")).to_arrow().column(0)[0].as_py()
            if self.is_kept:
                self._node.rows = known
        return known

    __len__ = count_rows

    def __bool__(self):
        raise TypeError("a DataFrame has no truth value: df.count_rows() > 0 runs it")

    # ---- row by row, batch by batch

    def iter_rows(self, named: bool = True) -> Iterator[Any]:
        """The rows one by one, as dicts (named=False: tuples), while the query goes on."""
        for batch in self.to_arrow_iter():
            if named:
                yield from batch.to_pylist()
            else:
                columns = [c.to_pylist() for c in batch.columns]
                yield from zip(*columns) if columns else ()

    __iter__ = iter_rows

    def iter_batches(self, batch_size: int | None = BATCH_ROWS, format: str = "arrow") -> Iterator[Any]:
        """The rows in batches of batch_size (the last may be smaller; None: as they come). format: arrow (RecordBatch), pandas, polars,
        numpy (dict of arrays), torch (dict of tensors), pydict, pylist."""
        convert = _FORMATS.get(format)
        if convert is None:
            raise invalid(f"format must be one of {', '.join(_FORMATS)}, not {format!r}")
        if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1):
            raise invalid(f"batch_size is a number of rows, 1 or more, or None, not {batch_size!r}")
        batches = self.to_arrow_iter()
        return map(convert, batches if batch_size is None else _rebatched(batches, batch_size))

    def to_torch_iter_dataset(self) -> Any:
        """A torch IterableDataset of rows (dicts). With several DataLoader workers each runs the query, in a session of its own, and gives
        its share of the rows: those whose hash is its own. So the query must give the same rows each time."""
        from brant import torch_data
        return torch_data.iterable(self)

    def to_torch_map_dataset(self) -> Any:
        """A torch Dataset of all rows (dicts), held in memory."""
        from brant import torch_data
        return torch_data.mapping(self)

    # ---- writing

    def write_parquet(self, path: Path, *, mode: str = "error", partition_cols: Columns = (), single_file: bool | None = None,
                      **options: Any) -> DataFrame:
        """Write files, all or none (docs/sinks.md), and give the list of them as a DataFrame. path: a directory, or a file if it ends with
        .parquet. mode: error (if something is there), overwrite, append. options are DuckDB's: compression='zstd', row_group_size=…"""
        return self._write(path, "parquet", mode, partition_cols, single_file, options)

    def write_csv(self, path: Path, *, mode: str = "error", partition_cols: Columns = (), single_file: bool | None = None,
                  **options: Any) -> DataFrame:
        """As write_parquet; options: header=False, delimiter=';', compression='gzip', …"""
        return self._write(path, "csv", mode, partition_cols, single_file, options)

    def write_json(self, path: Path, *, mode: str = "error", partition_cols: Columns = (), single_file: bool | None = None,
                   **options: Any) -> DataFrame:
        """As write_parquet, an object a line (array=True: one array). JSON can't be partitioned."""
        return self._write(path, "json", mode, partition_cols, single_file, options)

    def _write(self, path, kind, mode, partition_cols, single_file, options):
        from brant import io
        mode = {"fail": "error", "errorifexists": "error", "error_if_exists": "error"}.get(mode, mode)
        if mode not in ("error", "overwrite", "append"):
            raise invalid(f"mode must be error, overwrite or append, not {mode!r}")
        path = io.local(path)
        keys = self._plain(partition_cols)
        splits = {"per_thread_output", "file_size_bytes", "row_groups_per_file"} & {o.lower() for o in options}
        if single_file is None:
            single_file = bool(_is_file_name(path, kind) and not keys and not splits and not os.path.isdir(path))
        if single_file and (keys or path.endswith("/")):
            raise invalid(f"one file can't be {'partitioned' if keys else 'written to a directory'}: {path}")
        if single_file and mode == "append":
            raise invalid(f"append needs a directory: {path} is one file")
        if single_file and mode == "error" and os.path.exists(path):
            raise invalid(f"{path} is there already: mode='overwrite' replaces it")
        words = [f"FORMAT {kind}"] + [f"{_option(k)} {_option_value(k, v)}" for k, v in options.items()]
        if keys:
            words.append(f"PARTITION_BY ({', '.join(map(quote, keys))})")
        if not single_file:
            path = path if path.endswith("/") else path + "/"
            words += [mode.upper()] if mode != "error" else []
        plan.prepare(self.session, self._node)
        table = self.session.execute(f"COPY (\n{self.sql()}\n) TO {string(path)} ({', '.join(words)})").arrow()
        out = io.from_arrow(table, session=self._own_session)
        out._table = table
        return out


def _shown_type(t):
    try:
        return type_name(t).strip('"')
    except Error:
        return str(t)


def _is_file_name(path, kind):
    name = os.path.basename(path).lower()
    for end in ("", ".gz", ".zst"):
        if any(name.endswith(e + end) and name != e + end for e in {"parquet": [".parquet", ".pq"], "csv": [".csv", ".tsv"],
                                                                     "json": [".json", ".jsonl", ".ndjson"]}[kind]):
            return True
    return False


_SHORT = {"delimiter": "DELIM", "has_headers": "HEADER"}


def _option(name):
    if not name.isidentifier():
        raise invalid(f"{name!r} is not the name of an option")
    return _SHORT.get(name.lower(), name.upper())


def _option_value(name, value):
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(quote(v) for v in value) + ")"
    return literal(value)


def _rebatched(batches, rows):
    """Batches of exactly so many rows, but for the last."""
    import pyarrow as pa
    held, have, schema = [], 0, None
    for batch in batches:
        schema = batch.schema
        start = 0
        while batch.num_rows - start >= rows - have:
            held.append(batch.slice(start, rows - have))
            start += rows - have
            yield _one_batch(pa, held, schema)
            held, have = [], 0
        if start < batch.num_rows:
            held.append(batch.slice(start))
            have += batch.num_rows - start
    if held:
        yield _one_batch(pa, held, schema)


def _one_batch(pa, batches, schema):
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    return pa.RecordBatch.from_arrays([c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in table.columns], schema=schema)


def _numpy(batch):
    return {n: c.to_numpy(zero_copy_only=False) for n, c in zip(batch.schema.names, batch.columns)}


def _torch(batch):
    import torch
    out = {}
    for name, values in _numpy(batch).items():
        if values.dtype.kind not in "biuf":
            raise invalid(f"the column {quote(name)} is no tensor: select numbers, or take format='numpy'")
        out[name] = torch.from_numpy(values.copy())
    return out


def _polars(batch):
    import polars
    return polars.from_arrow(batch)


_FORMATS = {"arrow": lambda b: b, "pandas": lambda b: b.to_pandas(), "polars": _polars, "numpy": _numpy, "torch": _torch,
            "pydict": lambda b: b.to_pydict(), "pylist": lambda b: b.to_pylist()}
