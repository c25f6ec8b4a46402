# SPDX-License-Identifier: Apache-2.0
"""A session: one engine with its workers. `brant.sql` and the readers use the default one, made at first use."""
from __future__ import annotations

import atexit
import os
import sys
import threading

from brant import errors, progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pyarrow as pa

    from brant._types import Any, Callable, Iterator, Mapping, Params, Path

_flags = sys.getdlopenflags()
sys.setdlopenflags(os.RTLD_LAZY)  # DuckDB's library has thousands of functions: each is looked up when it is first called
try:
    from brant import _native
finally:
    sys.setdlopenflags(_flags)

_native.set_error_type(errors.make)


class Result:
    """The rows of one statement, read once: an Arrow C stream (`__arrow_c_stream__`), or by the methods here, which show the progress
    (see Session)."""

    def __init__(self, query, progress=None):
        self._query, self._progress = query, progress

    def __arrow_c_stream__(self, requested_schema=None):
        return self._query.__arrow_c_stream__(requested_schema)

    def reader(self) -> pa.RecordBatchReader:
        """A pyarrow.RecordBatchReader over the rows, batch by batch as they are ready."""
        import pyarrow as pa
        try:
            return pa.RecordBatchReader.from_stream(self)
        except errors.Error:
            raise
        except Exception:  # the stream can say only words: the engine knows the error
            self._query.check()
            raise

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The pyarrow.RecordBatches, one by one, as they are ready."""
        with self.reader() as reader:
            yield from self._read(reader, True)

    def arrow(self) -> pa.Table:
        """All rows as a pyarrow.Table."""
        import pyarrow as pa
        with self.reader() as reader:
            return pa.Table.from_batches(self._read(reader, False), schema=reader.schema)

    def _read(self, reader, between):
        """The batches; what the engine says went wrong, as its error; the progress while it takes long, but not while somebody else has
        a batch (between)."""
        with progress.Progress(self._query, progress.place(self._progress)) as p:
            while True:
                if between:
                    p.waiting(True)
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    return
                except Exception:
                    self._query.check()
                    raise
                if between:
                    p.waiting(False)
                yield batch

    def cancel(self) -> None:
        """Stop it. Any thread."""
        self._query.cancel()

    def stats(self) -> dict[str, Any]:
        """How far it is, or how it was: a dict (bytes, rows, seconds)."""
        return self._query.stats()


class Session:
    """An engine. workers: local worker processes (0: one); threads and memory (bytes, or '2GB') are of one worker, 0 chooses; distribute: auto (small
    inputs run in this process), always, never; mode: auto, staged, eager; listen: (host, port) where external_workers workers join,
    with secret. settings: a dict for `set`. progress: shown on a terminal or in a notebook (None), always on standard error (True), or
    never (False). A context manager; closed at the end of the process."""

    def __init__(self, *, workers: int = 0, threads: int = 0, memory: int | str = 0, temp_dir: Path | None = None, mode: str = "auto",
                 distribute: str = "auto", listen: tuple[str, int] | None = None, external_workers: int = 0, secret: str | None = None,
                 executors: int = 0, settings: Mapping[str, Any] | None = None, progress: bool | None = None) -> None:
        self._progress = progress
        self._at_close: list[Callable[[], Any]] = []
        self.interpreter = sys.executable or "python3"  # of functions that name none; None: each worker's own
        for name, n in (("workers", workers), ("threads", threads), ("external_workers", external_workers), ("executors", executors)):
            if not hasattr(n, "__index__") or n < 0:
                raise errors.InvalidError(f"{name} is a number, 0 or more, not {n!r}", "INVALID", "USER")
        host, port = listen or (None, 0)
        if isinstance(memory, str):
            from brant.udf import bytes_of
            memory = bytes_of(memory)
        self._native = _native.Session(
            workers=workers, threads=threads, memory_bytes=memory, temp_dir=None if temp_dir is None else os.fspath(temp_dir), mode=mode,
            distribute=distribute, listen_host=host, listen_port=port, external_workers=external_workers, secret=secret, executors=executors)
        for name, value in (settings or {}).items():
            self.set(name, value)

    def set(self, name: str, value: Any) -> None:
        """A setting of brant (docs/settings.md) or of DuckDB."""
        self._native.set(name, str(value).lower() if isinstance(value, bool) else str(value))

    def bind(self, statement: str, params: Params) -> str:
        """The statement with values in the place of its parameters. params: a dict for $name, a sequence for ? and $1."""
        from brant import literal
        if isinstance(params, dict):
            values = [(literal.check_text(n, "a parameter's name"), literal.literal(v)) for n, v in params.items()]
        elif isinstance(params, (list, tuple)):
            values = [(None, literal.literal(v)) for v in params]
        else:
            raise errors.InvalidError(f"params is a list or a dict, not {params!r:.100}", "INVALID", "USER")
        return self._native.bind(statement, values)

    def execute(self, text: str, params: Params = None) -> Result:
        """Run a script: the statements in order, each to its end but the last. Returns the Result of the last one, which params are for
        (see bind)."""
        statements = _native.split(text)
        if not statements:
            raise errors.InvalidError("there is no statement in the text", "INVALID", "USER")
        for statement in statements[:-1]:
            Result(self._native.submit(statement), self._progress).arrow()
        last = statements[-1] if params is None else self.bind(statements[-1], params)
        return Result(self._native.submit(last), self._progress)

    def keep(self, text: str, name: str) -> None:
        """Run a SELECT and keep its rows where they are made, as the table `name` of this session."""
        query = self._native.submit(text)
        with progress.Progress(query, progress.place(self._progress)):
            query.persist(name)

    def explain(self, text: str, analyze: bool = False) -> str:
        """The stages of a SELECT as text; analyze runs it and adds what was measured."""
        return self._native.explain(text, analyze)

    def subscribe(self, function: Callable[[str], Any]) -> None:
        """function(json_text) is called with each event, from the engine's thread (docs/events.md)."""
        self._native.subscribe(function)

    def close(self) -> None:
        """Cancel what runs, end the local workers, remove their files."""
        self._native.close()
        while self._at_close:
            self._at_close.pop()()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


_default: Session | None = None
_lock = threading.Lock()
_inherited: list[Session] = []  # sessions of the process that this one was forked from: held, since nothing of them may be ended here


def _forked():
    """In a child of fork: the next use makes a default session of its own."""
    global _default, _lock
    _lock = threading.Lock()
    _inherited.append(_default)
    _default = None


os.register_at_fork(after_in_child=_forked)


def _end_with_process():
    """A process of multiprocessing ends without atexit."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and sys.modules["multiprocessing.process"].parent_process() is not None:
        util.Finalize(None, shutdown, exitpriority=0)


def default() -> Session:
    """The session that everything uses unless told otherwise; made when first asked for."""
    global _default
    with _lock:
        if _default is None:
            _default = Session()
            _end_with_process()
        return _default


def init(where: str = "local", **options: Any) -> Session:
    """Replace the default session and return the new one. where: "local" (workers on this machine), "host:port" (listen there for
    external_workers workers, at least one, that others start with `brant worker --join host:port`), "ray" (workers on the nodes of a Ray
    cluster, running or started here). options: see Session; for Ray address=, workers_per_node=, threads=, memory=, gpus= (of one worker),
    host= (how nodes reach this process), wait= (seconds), ray_options= (of ray.init), and those of Session (docs/ray.md)."""
    global _default
    make: type[Session] = Session
    if where == "ray":
        from brant.ray_cluster import RaySession as make
    elif where != "local":
        options.setdefault("external_workers", 1)
        options["listen"] = _address(where)
    with _lock:
        old, _default = _default, None
        if old is not None:
            old.close()
        _default = make(**options)
        _end_with_process()
        return _default


def _address(text):
    """(host, port) of host:port or [v6 address]:port."""
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise errors.InvalidError(f'init wants "local", "ray" or "host:port", not {text!r}', "INVALID", "USER")
    return host, int(port)


@atexit.register
def shutdown() -> None:
    """Close the default session."""
    global _default
    with _lock:
        old, _default = _default, None
    if old is not None:
        old.close()
