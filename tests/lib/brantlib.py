# SPDX-License-Identifier: Apache-2.0
"""The C API (include/brant.h) through ctypes, for tests, demo and benchmarks.

Results come back as pyarrow tables over the Arrow C stream: nothing is converted on the way. Not the Python package: that is a
binding of its own.
"""
import ctypes as C
import json as jsonlib
import os
import pathlib
import threading

import pyarrow as pa

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BRANT_BUILD_DIR", ROOT / "build"))
CODES = ("OK INVALID NOT_FOUND IO NO_SPACE PERMISSION OUT_OF_MEMORY UNSUPPORTED CORRUPT NETWORK TIMEOUT CANCELLED FETCH LOST "
         "VERSION EXECUTION INTERNAL").split()


BLAMES = "NONE USER TASK FETCH EXECUTOR WORKER INTERNAL".split()


class _Options(C.Structure):
    _fields_ = [("size", C.c_size_t), ("workers", C.c_uint32), ("threads", C.c_uint32), ("memory_bytes", C.c_uint64),
                ("temp_dir", C.c_char_p), ("mode", C.c_int), ("distribute", C.c_int), ("listen_host", C.c_char_p),
                ("listen_port", C.c_int), ("wait_workers", C.c_uint32), ("external_workers", C.c_uint32), ("secret", C.c_char_p),
                ("executors", C.c_uint32)]


class _Error(C.Structure):
    _fields_ = [("code", C.c_int), ("blame", C.c_int), ("sys_errno", C.c_int), ("worker", C.c_uint32), ("message", C.c_char * 2048)]


class Stats(C.Structure):
    """brant_stats; see include/brant.h for the units."""

    _fields_ = [("size", C.c_size_t), ("stages", C.c_uint32), ("stages_done", C.c_uint32), ("tasks", C.c_uint32),
                ("tasks_done", C.c_uint32), ("tasks_running", C.c_uint32), ("rows_read", C.c_uint64), ("rows_out", C.c_uint64),
                ("bytes_shuffled", C.c_uint64), ("bytes_fetched", C.c_uint64), ("spilled_bytes", C.c_uint64),
                ("peak_memory_bytes", C.c_uint64), ("coordinator_memory_bytes", C.c_uint64), ("seconds", C.c_double),
                ("cpu_seconds", C.c_double), ("distributed", C.c_int), ("retries", C.c_uint64), ("executors_lost", C.c_uint64),
                ("workers_lost", C.c_uint64), ("text", C.c_char * 128), ("rows_shuffled", C.c_uint64), ("second_attempts", C.c_uint64),
                ("outputs_lost", C.c_uint64), ("tasks_again", C.c_uint64), ("eager", C.c_int)]


class _Stream(C.Structure):
    _fields_ = [("get_schema", C.c_void_p), ("get_next", C.c_void_p), ("get_last_error", C.c_void_p), ("release", C.c_void_p),
                ("private_data", C.c_void_p)]


EVENT_FN = C.CFUNCTYPE(None, C.c_void_p, C.c_char_p)


class BrantError(Exception):
    """What the engine said: code is a name of enum brant_code, blame one of enum brant_blame."""

    def __init__(self, err):
        self.code = CODES[err.code] if err.code < len(CODES) else str(err.code)
        self.blame = BLAMES[err.blame] if err.blame < len(BLAMES) else str(err.blame)
        self.message = err.message.decode("utf-8", "replace")
        super().__init__(f"{self.code}: {self.message}")


def _load():
    lib = C.CDLL(str(BUILD / "libbrant.so"))
    p, e = C.c_void_p, C.POINTER(_Error)
    for name, args, res in [
            ("brant_open", [C.POINTER(_Options), C.POINTER(p), e], C.c_int), ("brant_close", [p], None),
            ("brant_set", [p, C.c_char_p, C.c_char_p, e], C.c_int), ("brant_submit", [p, C.c_char_p, C.POINTER(p), e], C.c_int),
            ("brant_query_stream", [p, C.POINTER(_Stream), e], C.c_int), ("brant_query_cancel", [p], None),
            ("brant_query_error", [p, e], C.c_int), ("brant_query_stats", [p, C.POINTER(Stats)], None),
            ("brant_query_free", [p], None), ("brant_interrupt", [p], None),
            ("brant_subscribe", [p, EVENT_FN, p, e], C.c_int), ("brant_free", [p], None), ("brant_version", [], C.c_char_p),
            ("brant_register_arrow", [p, C.c_char_p, C.POINTER(_Stream), e], C.c_int), ("brant_drop_table", [p, C.c_char_p, e], C.c_int),
            ("brant_query_persist", [p, C.c_char_p, e], C.c_int),
            ("brant_explain", [p, C.c_char_p, C.c_int, C.c_int, C.POINTER(C.c_void_p), e], C.c_int)]:
        f = getattr(lib, name)
        f.argtypes, f.restype = args, res
    return lib


class Query:
    """One submitted statement. cancel() and stats() are for any thread; a cancel() that comes after free() does nothing, as the handle is
    somebody else's memory by then. Whoever frees it sees to it that nobody reads just then."""

    def __init__(self, session, handle):
        self._s, self._h, self._lock = session, handle, threading.Lock()

    def _handle(self):
        assert self._h, "this query was freed"
        return self._h

    def reader(self):
        """The result as a pyarrow.RecordBatchReader (once)."""
        st, err = _Stream(), _Error()
        if self._s.lib.brant_query_stream(self._handle(), C.byref(st), C.byref(err)):
            raise BrantError(err)
        return pa.RecordBatchReader._import_from_c(C.addressof(st))

    def table(self):
        """The whole result as a pyarrow.Table; raises BrantError with the query's own error."""
        try:
            return self.reader().read_all()
        except (OSError, pa.ArrowException, MemoryError):
            err = _Error()
            if self._s.lib.brant_query_error(self._handle(), C.byref(err)):
                raise BrantError(err) from None
            raise

    def persist(self, name):
        err = _Error()
        if self._s.lib.brant_query_persist(self._handle(), name.encode(), C.byref(err)):
            raise BrantError(err)

    def cancel(self):
        with self._lock:
            if self._h:
                self._s.lib.brant_query_cancel(self._h)

    def stats(self):
        st = Stats(size=C.sizeof(Stats))
        with self._lock:
            self._s.lib.brant_query_stats(self._handle(), C.byref(st))
        return st

    def free(self):
        with self._lock:
            handle, self._h = self._h, None
        if handle:
            self._s._unfreed.discard(self)
            self._s.lib.brant_query_free(handle)


_OPEN = set()  # sessions: one that nobody holds any more would take its callbacks along while the engine calls them


class Session:
    """brant_session. workers, threads, memory (bytes), distribute = auto|always|never, mode = auto|staged|eager, settings by set()."""

    def __init__(self, workers=3, threads=1, memory=0, distribute="always", temp_dir=None, settings=None, listen_port=0,
                 external_workers=0, secret=None, mode="auto", listen_host=None, executors=0):
        self.lib, self._unfreed = _load(), set()
        o = _Options(size=C.sizeof(_Options), workers=workers, threads=threads, memory_bytes=memory,
                     temp_dir=str(temp_dir).encode() if temp_dir else None,
                     distribute={"auto": 0, "always": 1, "never": 2}[distribute], listen_port=listen_port,
                     listen_host=listen_host.encode() if listen_host else None, mode={"auto": 0, "staged": 1, "eager": 2}[mode],
                     external_workers=external_workers, executors=executors, secret=secret.encode() if secret else None)
        self._h, err = C.c_void_p(), _Error()
        if self.lib.brant_open(C.byref(o), C.byref(self._h), C.byref(err)):
            raise BrantError(err)
        _OPEN.add(self)
        for k, v in (settings or {}).items():
            self.set(k, v)

    def _handle(self):
        assert self._h, "this session is closed"
        return self._h

    def set(self, name, value):
        err = _Error()
        if self.lib.brant_set(self._handle(), name.encode(), str(value).encode(), C.byref(err)):
            raise BrantError(err)

    def subscribe(self, fn):
        """fn(event as a dict) for each event, called on the engine's thread."""
        self._event_fns = getattr(self, "_event_fns", []) + [EVENT_FN(lambda _, text: fn(jsonlib.loads(text)))]
        err = _Error()
        if self.lib.brant_subscribe(self._handle(), self._event_fns[-1], None, C.byref(err)):
            raise BrantError(err)

    def register(self, name, data):
        """A pyarrow Table or RecordBatchReader as a table."""
        st, err = _Stream(), _Error()
        reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_batches(data.schema, data.to_batches())
        reader._export_to_c(C.addressof(st))
        if self.lib.brant_register_arrow(self._handle(), name.encode(), C.byref(st), C.byref(err)):
            raise BrantError(err)

    def drop_table(self, name):
        err = _Error()
        if self.lib.brant_drop_table(self._handle(), name.encode(), C.byref(err)):
            raise BrantError(err)

    def interrupt(self):
        self.lib.brant_interrupt(self._handle())

    def submit(self, sql):
        q, err = C.c_void_p(), _Error()
        if self.lib.brant_submit(self._handle(), sql.encode(), C.byref(q), C.byref(err)):
            raise BrantError(err)
        query = Query(self, q)
        self._unfreed.add(query)
        return query

    def run(self, sql):
        """Run one statement to its end: (pyarrow.Table, Stats)."""
        q = self.submit(sql)
        try:
            t = q.table()
            return t, q.stats()
        finally:
            q.free()

    def explain(self, sql, analyze=False, json=False):
        text, err = C.c_void_p(), _Error()
        if self.lib.brant_explain(self._handle(), sql.encode(), int(analyze), int(json), C.byref(text), C.byref(err)):
            raise BrantError(err)
        try:
            return C.string_at(text).decode()
        finally:
            self.lib.brant_free(text)

    def close(self):
        if self._h:
            self.lib.brant_close(self._h)
            self._h = None
            _OPEN.discard(self)

    def free_queries(self):
        """What a test that failed has left: each holds the session's thread, and its port, even when it is closed."""
        for q in list(self._unfreed):
            q.free()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
