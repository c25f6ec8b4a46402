# SPDX-License-Identifier: Apache-2.0
"""A session: one engine with its workers. `brant.sql` and the readers use the default one, made at first use."""
import atexit
import threading

from brant import _native, errors

_native.set_error_type(errors.make)


class Result:
    """The rows of one statement, read once: an Arrow C stream (`__arrow_c_stream__`), or by the methods here."""

    def __init__(self, query):
        self._query = query

    def __arrow_c_stream__(self, requested_schema=None):
        return self._query.__arrow_c_stream__(requested_schema)

    def reader(self):
        """A pyarrow.RecordBatchReader over the rows, batch by batch as they are ready."""
        import pyarrow as pa
        return pa.RecordBatchReader.from_stream(self)

    def batches(self):
        """The pyarrow.RecordBatches, one by one, as they are ready."""
        with self.reader() as r:
            while True:
                try:
                    batch = r.read_next_batch()
                except StopIteration:
                    return
                except Exception:
                    self._query.check()
                    raise
                yield batch

    def arrow(self):
        """All rows as a pyarrow.Table."""
        import pyarrow as pa
        try:
            with self.reader() as r:
                schema = r.schema
                return pa.Table.from_batches(_checked(r, self._query), schema=schema)
        except Exception:
            self._query.check()
            raise

    def cancel(self):
        """Stop it. Any thread."""
        self._query.cancel()

    def stats(self):
        """How far it is, or how it was: a dict (bytes, rows, seconds)."""
        return self._query.stats()


def _checked(reader, query):
    try:
        yield from reader
    except Exception:
        query.check()
        raise


class Session:
    """An engine. workers: local worker processes (0: one); threads and memory (bytes) are of one worker, 0 chooses; distribute: auto (small
    inputs run in this process), always, never; mode: auto, staged, eager; listen: (host, port) where external_workers workers join,
    with secret. settings: a dict for `set`. A context manager; closed at the end of the process."""

    def __init__(self, *, workers=0, threads=0, memory=0, temp_dir=None, mode="auto", distribute="auto", listen=None, external_workers=0,
                 secret=None, executors=0, settings=None):
        host, port = listen or (None, 0)
        self._native = _native.Session(workers=workers, threads=threads, memory_bytes=memory, temp_dir=temp_dir, mode=mode,
                                       distribute=distribute, listen_host=host, listen_port=port, external_workers=external_workers,
                                       secret=secret, executors=executors)
        for name, value in (settings or {}).items():
            self.set(name, value)

    def set(self, name, value):
        """A setting of brant (docs/settings.md) or of DuckDB."""
        self._native.set(name, str(value).lower() if isinstance(value, bool) else str(value))

    def execute(self, text):
        """Run a script: the statements in order, each to its end but the last. Returns the Result of the last one."""
        statements = _native.split(text)
        if not statements:
            raise errors.InvalidError("there is no statement in the text", "INVALID", "USER")
        for statement in statements[:-1]:
            Result(self._native.submit(statement)).arrow()
        return Result(self._native.submit(statements[-1]))

    def explain(self, text, analyze=False):
        """The stages of a SELECT as text; analyze runs it and adds what was measured."""
        return self._native.explain(text, analyze)

    def subscribe(self, function):
        """function(json_text) is called with each event, from the engine's thread (docs/events.md)."""
        self._native.subscribe(function)

    def close(self):
        """Cancel what runs, end the local workers, remove their files."""
        self._native.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


_default = None
_lock = threading.Lock()


def default():
    """The session that everything uses unless told otherwise; made when first asked for."""
    global _default
    with _lock:
        if _default is None:
            _default = Session()
        return _default


def init(**options):
    """Replace the default session by one with these options (see Session)."""
    global _default
    with _lock:
        old, _default = _default, None
        if old is not None:
            old.close()
        _default = Session(**options)
        return _default


@atexit.register
def shutdown():
    """Close the default session."""
    global _default
    with _lock:
        old, _default = _default, None
    if old is not None:
        old.close()
