# SPDX-License-Identifier: Apache-2.0
"""Where DataFrames come from: files, SQL, and what Python has in memory."""
from __future__ import annotations

import os
import queue
import re
import sys
import threading
import weakref

from brant import errors, literal, plan
from brant import session as _session
from brant.dataframe import DataFrame
from brant.literal import quote, string
from brant.plan import Raw, Table, Verbatim, invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pandas
    import polars

    from brant._types import Any, Dtype, Iterable, Mapping, Params, Path, Paths, Sequence
    from brant.session import Session

VALUES_ROWS = 1000  # data from Python up to this many rows stands in the SQL text itself
VALUES_CELLS = 20000


# ---- files


def local(path):
    """A path as the engine takes it: absolute, so that it means the same wherever it is read; URLs stay."""
    text = os.fspath(path)
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if not text:
        raise invalid("the path is empty")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return text
    text = os.path.expanduser(text)
    return os.path.abspath(text) + ("/" if text.endswith("/") and text.strip("/") else "")


def _paths(path, endings):
    """The text of a reader's first argument. A directory is all its files."""
    many = isinstance(path, (list, tuple, set))
    out = []
    for p in (sorted(path) if isinstance(path, set) else path) if many else [path]:
        p = local(p)
        out.append(_files_below(p, endings) if os.path.isdir(p) else p)
    if not out:
        raise invalid("there is no path")
    return literal.literal(out) if many else string(out[0])


def _files_below(directory, endings):
    escaped = re.sub(r"([*?\[\]])", r"[\1]", directory.rstrip("/"))
    return f"{escaped}/**/*{endings}"


def _reader(function, path, endings, options, session):
    arguments = [_paths(path, endings)]
    for name, value in options.items():
        if not name.isidentifier():
            raise invalid(f"{name!r} is not the name of an option")
        arguments.append(f"{name} = {literal.literal(value)}")
    return DataFrame(Table(f"{function}({', '.join(arguments)})"), session)


def read_parquet(path: Paths, *, session: Session | None = None, **options: Any) -> DataFrame:
    """Parquet files: a path, a pattern (*, **), a directory, or a list of them. options are DuckDB's: hive_partitioning=, union_by_name=,
    filename=, file_row_number=, …"""
    return _reader("read_parquet", path, ".parquet", options, session)


_CSV = {"delimiter": "delim", "has_headers": "header", "escape_char": "escape", "column_names": "names"}


def read_csv(path: Paths, *, schema: Mapping[str, Dtype] | None = None, session: Session | None = None, **options: Any) -> DataFrame:
    """CSV files, as read_parquet. schema: {column: type} if it should not be guessed; options are DuckDB's: delim=, header=, nullstr=,
    types=, all_varchar=, ignore_errors=, …"""
    options = {_CSV.get(k, k): v for k, v in options.items()}
    if schema is not None:
        options["columns"] = {n: literal.type_name(t) for n, t in schema.items()}
    return _reader("read_csv", path, ".csv*", options, session)


def read_json(path: Paths, *, schema: Mapping[str, Dtype] | None = None, session: Session | None = None, **options: Any) -> DataFrame:
    """JSON files, an object a line or an array, as read_parquet. schema: {column: type} if it should not be guessed."""
    if schema is not None:
        options["columns"] = {n: literal.type_name(t) for n, t in schema.items()}
    return _reader("read_json", path, ".*json*", options, session)


def read_warc(path: Paths, *, session: Session | None = None, **options: Any) -> DataFrame:
    """WARC files: a row a record."""
    return _reader("read_warc", path, ".warc*", options, session)


def read_text(path: Paths, *, session: Session | None = None) -> DataFrame:
    """Whole files as strings: filename, content, size, last_modified."""
    return _reader("read_text", path, "", {}, session)


def read_blob(path: Paths, *, session: Session | None = None) -> DataFrame:
    """Whole files as bytes: filename, content, size, last_modified."""
    return _reader("read_blob", path, "", {}, session)


def from_glob_path(path: Path, *, session: Session | None = None) -> DataFrame:
    """The names of the files that a pattern matches, as the column `file`."""
    return DataFrame(Table(f"glob({string(local(path))})"), session)


def read_arrow(path: Path, *, session: Session | None = None) -> DataFrame:
    """An Arrow IPC file (or stream, or Feather file), mapped into memory."""
    import pyarrow as pa
    source = pa.memory_map(local(path))
    try:
        table = pa.ipc.open_file(source).read_all()
    except pa.ArrowInvalid:
        source.seek(0)
        table = pa.ipc.open_stream(source).read_all()
    return from_arrow(table, session=session)


def read_sql(query: str, connection: Any, *, session: Session | None = None) -> DataFrame:
    """The rows of a query in another database: a connection of DB-API 2 or ADBC, or a function that makes one. The query runs there, at once."""
    made = callable(connection) and not hasattr(connection, "cursor")
    conn = connection() if made else connection
    try:
        cursor = conn.cursor()
        try:
            cursor.execute(query)
            for method in ("fetch_arrow_table", "to_arrow_table"):
                if hasattr(cursor, method):
                    return from_arrow(getattr(cursor, method)(), session=session)
            names = [d[0] for d in cursor.description]
            rows = cursor.fetchall()
        finally:
            cursor.close()
    finally:
        if made:
            conn.close()
    plan.check_unique(names)
    return from_pydict({n: [r[i] for r in rows] for i, n in enumerate(names)}, session=session)


# ---- SQL


def range(start: int, end: int | None = None, step: int = 1, *, session: Session | None = None) -> DataFrame:  # noqa: A001
    """The numbers from start (0) up to end, in the column `id`."""
    if end is None:
        start, end = 0, start
    for v in (start, end, step):
        if isinstance(v, bool) or not hasattr(v, "__index__"):
            raise invalid(f"range() takes whole numbers, not {v!r}")
    if step == 0:
        raise invalid("range(): the step can't be 0")
    arguments = ", ".join(str(v.__index__()) for v in (start, end, step)[:3 if step != 1 else 2])
    return DataFrame(Raw([f"SELECT range AS id\0FROM range({arguments})"], ["id"]), session)


def table(name: str, *, session: Session | None = None) -> DataFrame:
    """A table or view of the session: 'name' or 'schema.name'."""
    return DataFrame(Table(".".join(quote(p) for p in name.split("."))), session)


_QUERIES = ("select", "from", "with", "values", "table", "describe", "desc", "summarize", "show")


def sql(query: str, *, session: Session | None = None, params: Params = None, **frames: Any) -> DataFrame:
    """A query as a DataFrame. Names in it that are variables of the caller (DataFrames, pandas, polars, Arrow tables) stand for them, or those
    given by name: sql('SELECT … FROM t', t=df). params: values for ? and $1 (a list) or $name (a dict) in it; of several statements, in
    the last. Other statements (CREATE VIEW, SET, …) run at once; without rows they give None."""
    return _sql(query, session, frames, sys._getframe(1), params)


def _sql(query, session, frames, caller, params=None):
    from brant import _native
    literal.check_text(query, "SQL text")
    statements = _native.split(query)
    if not statements:
        raise errors.InvalidError("there is no statement in the text", "INVALID", "USER")
    run_in = session or _session.default()
    for s in statements[:-1]:
        run_in.execute(s).arrow()
    text = statements[-1].strip().rstrip(";")
    if params is not None:
        text = run_in.bind(text, params)
    word = re.match(r"(?:\s|--[^\n]*\n|/\*.*?\*/|\()*([A-Za-z]*)", text, re.S)[1].lower()
    if word not in _QUERIES:
        return _result(run_in.execute(text).arrow(), session)
    tables = _tables(run_in, text)
    bound = dict(frames)
    for name in tables:
        if name not in bound:
            value = caller.f_locals.get(name, caller.f_globals.get(name))
            if _is_data(value):
                bound[name] = value
    nodes = {}
    for name, value in bound.items():
        frame = value if isinstance(value, DataFrame) else from_any(value, session=session)
        if frame._own_session is not None and frame._own_session is not run_in:
            raise invalid(f"{name} belongs to another session: give it as session=")
        nodes[name] = frame._node
    if not nodes:
        whole = word in ("select", "from", "with", "values")
        return DataFrame(Raw([Verbatim(text)] if whole else ["SELECT * FROM (\n", Verbatim(text), "\n)"]), session)
    parts = ["WITH "]
    for i, (name, node) in enumerate(nodes.items()):
        parts += [", " if i else "", f"{quote(name)} AS (FROM ", node, ")"]
    return DataFrame(Raw([*parts, "\0SELECT * FROM (\n", Verbatim(text), "\n)"]), session)


def _result(arrow, session):
    if not arrow.num_columns:
        return None
    frame = from_arrow(arrow, session=session)
    frame._table = arrow
    return frame


def _is_data(value):
    if isinstance(value, DataFrame):
        return True
    module = type(value).__module__.partition(".")[0]
    return (module in ("pandas", "polars") and type(value).__name__ in ("DataFrame", "LazyFrame")) or (
        module == "pyarrow" and type(value).__name__ in ("Table", "RecordBatch", "RecordBatchReader"))


def _tables(session, text):
    """The names of tables without a schema in a query; of one that can't be taken apart, none."""
    import json
    got = json.loads(session.execute(f"SELECT json_serialize_sql({string(text)})").arrow().column(0)[0].as_py(), strict=False)
    if got.get("error"):
        return []  # a syntax error, said when the query is planned
    found, stack = {}, [got]
    while stack:
        x = stack.pop()
        if isinstance(x, dict):
            if x.get("type") == "BASE_TABLE" and not x.get("schema_name") and not x.get("catalog_name"):
                found[x["table_name"]] = None
            stack.extend(x.values())
        elif isinstance(x, list):
            stack.extend(x)
    return list(found)


# ---- memory


class Memory(Table):
    """A table that Python has."""

    bulky = True

    def __init__(self, data, schema=None):
        self.data, self._at = data, weakref.WeakKeyDictionary()
        if schema is not None:
            self._schema = schema

    def __reduce__(self):
        return Memory, (self.data,)

    def names(self, session):
        return self.data.column_names

    def from_text(self, session):
        """Its text behind FROM in a session; given to the session at first use."""
        if session not in self._at:
            self._at[session] = _inputs(session).add(self)
        return self._at[session]


def _itself(x):
    return x


class Kept(Table):
    """A result that stays where it was made: its parts on the workers, or in this process where it ran here. A session that does not have
    it yet makes it from its query; after `release` that is in the text again."""

    bulky = True

    def __init__(self, node):
        self.node, self.rows, self._at, self._released = node, None, weakref.WeakKeyDictionary(), False

    def __reduce__(self):
        return _itself, (self.node,)  # elsewhere its rows are not kept: the query runs

    def names(self, session):
        names = self.node.names(session)
        return names if len({n.lower() for n in names}) == len(names) else super().names(session)  # a dataset has unique ones

    @property
    def udfs(self):
        """The functions that its text calls."""
        return tuple(u for n in plan.walk(self.node) for u in n.udfs) if self._released else ()

    def from_text(self, session):
        """Its text behind FROM in a session, which has it then."""
        if self._released:
            return f"({plan.to_sql(self.node, session)})"
        if session not in self._at:
            self._at[session] = _inputs(session).keep(self)
        return f"dataset({string(self._at[session])})"

    def release(self):
        """Forget the rows, in every session."""
        self._released = True
        for session, name in list(self._at.items()):
            _inputs(session).forget(self, name)
        self._at.clear()


class _Inputs:
    """The datasets of a session: what it was given from memory (small tables stand in the text instead), and results that stay. They are
    dropped when their nodes are gone: by a thread of their own, since a garbage collection comes at any time, in any thread."""

    def __init__(self, session):
        self.session, self.native, self.count, self.lock = weakref.ref(session), session._native, 0, threading.Lock()
        self.pinned, self.finalizers, self.gone = set(), weakref.WeakKeyDictionary(), queue.SimpleQueue()
        self.thread = None

    def add(self, memory):
        """Text for data from memory behind FROM."""
        text = _values(memory.data)
        if text is not None:
            return text
        name = self._name("input")
        self.native.register_arrow(name, memory.data)
        self._watch(memory, name)
        return f"dataset({string(name)})"

    def keep(self, kept):
        """Run its query, keep the rows as a dataset; its name."""
        session, name = self.session(), self._name("kept")
        plan.prepare(session, kept.node)
        session.keep(plan.to_sql(kept.node, session), name)
        self._watch(kept, name)
        return name

    def forget(self, node, name):
        """Drop it now."""
        finalizer = self.finalizers.pop(node, None)
        self.pinned.discard(node)
        if finalizer is not None and finalizer.detach():
            _drop_one(self.native, name)

    def _name(self, what):
        with self.lock:
            self.count += 1
            return f"brant_{what}_{self.count}"

    def _watch(self, node, name):
        with self.lock:
            if self.thread is None:
                self.thread = threading.Thread(target=_drop, args=(self.native, self.gone), name="brant-drop", daemon=True)
                self.thread.start()
        self.finalizers[node] = finalizer = weakref.finalize(node, self.gone.put, name)
        finalizer.atexit = False

    def stop(self):
        """The session is closed: it has dropped everything."""
        self.gone.put(None)
        self.pinned.clear()


def _drop(native, gone):
    """The thread that drops what nobody has any more."""
    while (name := gone.get()) is not None:
        _drop_one(native, name)


def _drop_one(native, name):
    try:
        native.drop_table(name)
    except (errors.Error, ValueError):
        pass  # the session was closed meanwhile, and has dropped it


_by_session: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _forked():
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def _inputs(session):
    with _lock:
        if session not in _by_session:
            _by_session[session] = made = _Inputs(session)
            session._at_close.append(made.stop)
            weakref.finalize(session, made.gone.put, None).atexit = False
        return _by_session[session]


def pin(session, node):
    """Datasets below this node stay until the session is closed."""
    _inputs(session).pinned.update(n for n in plan.walk(node) if isinstance(n, (Memory, Kept)))


def _plain_types(data):
    """Dictionaries and other encodings resolved, so that a column has one plain type."""
    import pyarrow as pa
    columns = []
    for c in data.columns:
        t = c.type
        if pa.types.is_dictionary(t) or pa.types.is_run_end_encoded(t):
            c = c.cast(t.value_type) if pa.types.is_dictionary(t) else pa.chunked_array([pa.compute.run_end_decode(x) for x in c.chunks], t.value_type)
        columns.append(c)
    return pa.Table.from_arrays(columns, names=data.column_names)


def _values(data):
    """A small table as text; None if it is not small, or has types that are not written so."""
    if data.num_rows > VALUES_ROWS or data.num_rows * data.num_columns > VALUES_CELLS:
        return None
    try:
        types = [literal.type_name(c.type) for c in data.columns]
        rows = list(zip(*[[_typed(v, c.type) for v in c] for c in data.columns]))
    except errors.InvalidError:
        return None
    names = [quote(n) for n in data.column_names]
    if not rows:
        return f"(SELECT {', '.join(f'CAST(NULL AS {t}) AS {n}' for t, n in zip(types, names))} WHERE FALSE)"
    casts = ", ".join(f"CAST({n} AS {t}) AS {n}" for t, n in zip(types, names))
    return f"(SELECT {casts} FROM (VALUES {', '.join('(' + ', '.join(r) + ')' for r in rows)}) AS _({', '.join(names)}))"


def _typed(scalar, t):
    """A pyarrow scalar as text that casts to its type."""
    import pyarrow.types as is_
    if not scalar.is_valid:
        return "NULL"
    if is_.is_map(t):
        return "MAP {" + ", ".join(f"{_typed(kv['key'], t.key_type)}: {_typed(kv['value'], t.item_type)}" for kv in scalar.values) + "}"
    if is_.is_list(t) or is_.is_large_list(t) or is_.is_fixed_size_list(t):
        return "[" + ", ".join(_typed(v, t.value_type) for v in scalar.values) + "]"
    if is_.is_struct(t):
        fields = [t.field(i) for i in _count(t.num_fields)]
        if not fields:
            raise invalid("a struct without fields")
        return "{" + ", ".join(f"{string(literal.check_text(f.name, 'a field'))}: {_typed(scalar[i], f.type)}" for i, f in enumerate(fields)) + "}"
    if is_.is_timestamp(t) and t.unit == "ns":
        seconds, nanos = divmod(scalar.value, 10**9)
        import datetime
        at = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
        return f"'{at.isoformat(' ')}.{nanos:09d}{'+00:00' if t.tz else ''}'"
    if is_.is_timestamp(t) and t.tz:
        import datetime
        unit = {"s": 10**6, "ms": 10**3, "us": 1}[t.unit]
        at = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=scalar.value * unit)
        return f"'{at.isoformat(' ')}+00:00'"
    if is_.is_time(t):
        return literal.literal(scalar.as_py())
    if is_.is_floating(t):
        return literal.literal(float(scalar.as_py()))
    try:
        return literal.literal(scalar.as_py())
    except (OverflowError, ValueError) as e:
        raise invalid(str(e)) from None


_count = __builtins__["range"] if isinstance(__builtins__, dict) else __builtins__.range


def memory(data, session=None, schema=None):
    """A node over an Arrow table."""
    plan.check_unique(data.column_names)
    return Memory(data, schema)


def from_arrow(data: Any, *, session: Session | None = None) -> DataFrame:
    """Arrow data: a Table, RecordBatch, reader, list of batches, or anything that gives an Arrow C stream (polars, pandas, duckdb, …)."""
    import pyarrow as pa
    if isinstance(data, (list, tuple)):
        if not data:
            raise invalid("an empty list of batches has no columns: give a Table with a schema")
        data = pa.concat_tables([d if isinstance(d, pa.Table) else pa.Table.from_batches([d]) for d in data])
    elif isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif isinstance(data, pa.RecordBatchReader):
        data = data.read_all()
    elif not isinstance(data, pa.Table):
        if isinstance(data, DataFrame):
            return data
        if not hasattr(data, "__arrow_c_stream__") and not hasattr(data, "__arrow_c_array__"):
            raise invalid(f"a {type(data).__module__}.{type(data).__qualname__} is no Arrow data")
        data = pa.table(data)
    if not data.num_columns:
        raise invalid("the data has no columns")
    if any(not n for n in data.column_names):
        raise invalid("a column has an empty name: rename it first")
    return DataFrame(memory(_plain_types(data), session), session)


def from_pandas(data: pandas.DataFrame, *, session: Session | None = None) -> DataFrame:
    """A pandas.DataFrame; its index is left out (reset_index() makes it a column). Names of columns must be strings."""
    import pyarrow as pa
    names = [n for n in data.columns if not isinstance(n, str)]
    if names:
        raise invalid(f"names of columns must be strings: {names[:3]!r}; pandas: df.rename(columns=str)")
    return from_arrow(pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(), session=session)


def from_polars(data: polars.DataFrame | polars.LazyFrame, *, session: Session | None = None) -> DataFrame:
    """A polars DataFrame or LazyFrame (which is collected)."""
    return from_arrow((data.collect() if hasattr(data, "collect") else data).to_arrow(), session=session)


def from_pydict(data: Mapping[str, Any], *, session: Session | None = None) -> DataFrame:
    """A dict of columns: lists, numpy arrays, pyarrow arrays, Series."""
    import pyarrow as pa
    columns = {}
    for name, values in data.items():
        if not isinstance(name, str):
            raise invalid(f"names of columns must be strings, not {name!r}")
        columns[name] = _array(pa, name, values)
    lengths = {n: len(c) for n, c in columns.items()}
    if len(set(lengths.values())) > 1:
        raise invalid(f"the columns have different lengths: {', '.join(f'{n} {k}' for n, k in lengths.items())}")
    return from_arrow(pa.table(columns), session=session)


def _array(pa, name, values):
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if hasattr(values, "to_arrow"):
        return values.to_arrow()
    if getattr(values, "ndim", 1) > 1:
        values = list(values)
    try:
        return pa.array(values) if hasattr(values, "dtype") else pa.array(list(values), from_pandas=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
        if _integers(values):
            return pa.array(values, pa.decimal128(38, 0))
        raise invalid(f"the column {quote(name)} is not of one type: {e}") from None


def _integers(values):
    return all(v is None or isinstance(v, int) and -10**38 < v < 10**38 for v in values)


def from_pylist(rows: Sequence[Mapping[str, Any]], *, session: Session | None = None) -> DataFrame:
    """A list of dicts, a row each; what a row does not have is NULL."""
    wrong = next((r for r in rows if not hasattr(r, "keys")), None)
    if wrong is not None:
        raise invalid(f"a row is a dict of column and value, not {wrong!r:.100}; columns of values: from_pydict")
    names = list(dict.fromkeys(n for r in rows for n in r))
    if not names:
        raise invalid("the rows have no columns")
    return from_pydict({n: [r.get(n) for r in rows] for n in names}, session=session)


def from_any(data, *, session=None):
    """A DataFrame of whatever holds a table."""
    module = type(data).__module__.partition(".")[0]
    if isinstance(data, DataFrame):
        return data
    if module == "pandas":
        return from_pandas(data, session=session)
    if module == "polars":
        return from_polars(data, session=session)
    if isinstance(data, dict):
        return from_pydict(data, session=session)
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return from_pylist(data, session=session)
    return from_arrow(data, session=session)


def frame_of(data, what, session):
    """The other frame of a method: a DataFrame, or what pandas, polars and pyarrow have of tables."""
    if not _is_data(data):
        raise invalid(f"{what}: expected a DataFrame, not a {type(data).__module__}.{type(data).__qualname__}")
    return from_any(data, session=session)


def concat(frames: Iterable[DataFrame]) -> DataFrame:
    """All rows of these frames, one after the other; they have the same columns."""
    frames = list(frames)
    if not frames:
        raise invalid("concat() needs a frame at least")
    out = frames[0]
    for f in frames[1:]:
        out = out.concat(f)
    return out
