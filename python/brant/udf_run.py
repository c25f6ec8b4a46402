# SPDX-License-Identifier: Apache-2.0
"""A user's function on one batch: its payload is loaded, arguments become what it wants, what it returns becomes an Arrow array of the
declared type. Runs inside a process of a pool (udf_process.py), without the rest of the package: only pyarrow and cloudpickle are needed there."""
import asyncio
import inspect
import linecache
import os
import pickle
import sys
import traceback
import types

USER, LOAD, RESULT, PROTOCOL = 1, 2, 3, 4  # br_udf_error_kind of src/udf/frames.h
_OWN = os.path.dirname(os.path.abspath(__file__))


_CONVERSION = (TypeError, ValueError, OverflowError, NotImplementedError, ArithmeticError)  # pyarrow's errors are among them


class Failure(Exception):
    """What goes back to the executor. row: counted within the batch, None: all of it."""

    def __init__(self, kind, type_name, message, trace="", row=None):
        super().__init__(message)
        self.kind, self.type_name, self.message, self.trace, self.row = kind, type_name, message, trace, row


def failure_of(e, kind, row=None, what=""):
    """From an exception that is being handled: its traceback begins in the user's code."""
    tb = e.__traceback__
    while tb is not None and os.path.dirname(os.path.abspath(tb.tb_frame.f_code.co_filename)) == _OWN and os.path.basename(
            tb.tb_frame.f_code.co_filename) in ("udf_run.py", "udf_process.py"):
        tb = tb.tb_next
    trace = "".join(traceback.format_exception(type(e), e, tb))
    message = str(e)
    if isinstance(e, ModuleNotFoundError) and e.name:
        message += f": package {e.name.partition('.')[0]!r} is missing for {sys.executable} on this worker: install it there"
    return Failure(kind, type(e).__name__, what + message, trace, row)


# ---- types


def result_schema(hexadecimal):
    """Of the one column that results must have, as the executor says it: an IPC stream without batches."""
    import pyarrow as pa
    schema = pa.ipc.open_stream(pa.py_buffer(bytes.fromhex(hexadecimal))).schema
    if len(schema) != 1:
        raise ValueError(f"a schema of one column is wanted, not {schema}")
    return schema


# The engine's columns come in its lossless types; functions see and give plain ones: bool for arrow.bool8, decimals for HUGEINT.


def _is_hugeint(t):
    return getattr(t, "extension_name", "") == "arrow.opaque" and getattr(t, "type_name", "") in ("hugeint", "uhugeint")


def plain_type(t, uuids=True):
    """The plain type of a column's; uuids: they stay UUIDs (values of Python are their bytes)."""
    import pyarrow as pa
    name = getattr(t, "extension_name", "")
    if name == "arrow.bool8":
        return pa.bool_()
    if name == "arrow.uuid" and not uuids:
        return t.storage_type
    if _is_hugeint(t):
        return pa.decimal128(38, 0)
    if name:
        return t if uuids else t.storage_type

    def field(f):
        return f.with_type(plain_type(f.type, uuids) if not _is_hugeint(f.type) else f.type)

    if pa.types.is_map(t):
        return pa.map_(field(t.key_field), field(t.item_field))
    if pa.types.is_fixed_size_list(t):
        return pa.list_(field(t.value_field), t.list_size)
    if pa.types.is_large_list(t):
        return pa.large_list(field(t.value_field))
    if pa.types.is_list(t):
        return pa.list_(field(t.value_field))
    if pa.types.is_struct(t):
        return pa.struct([field(t.field(i)) for i in range(t.num_fields)])
    return t


def _reread(array, t):
    """The same 16 bytes a value as another type."""
    import pyarrow as pa
    return pa.Array.from_buffers(t, len(array), array.buffers(), -1, array.offset)


def plain_array(array):
    t = plain_type(array.type)
    if t.equals(array.type):
        return array
    return _reread(array.storage, t) if _is_hugeint(array.type) else array.cast(t)


def declared_array(array, t):
    """An array that a function gave as the type that the engine wants. Raises pyarrow's errors."""
    import pyarrow as pa
    if array.type.equals(t):
        return array
    if _is_hugeint(t):
        return pa.ExtensionArray.from_storage(t, _reread(array.cast(pa.decimal128(38, 0)), t.storage_type))
    if isinstance(t, pa.BaseExtensionType) and t.extension_name not in ("arrow.bool8", "arrow.uuid"):
        return pa.ExtensionArray.from_storage(t, array.cast(t.storage_type))
    return array.cast(t)


# ---- arguments

def _numpy():
    try:
        import numpy as np
        return np
    except ImportError:
        return None


def _list(column):
    import pyarrow as pa
    t = column.type
    if pa.types.is_decimal(t) and t.scale == 0 and t.precision == 38:
        return [None if v is None else int(v) for v in column.to_pylist()]
    if column.null_count == 0 and (pa.types.is_integer(t) or pa.types.is_floating(t)) and not pa.types.is_float16(t) and _numpy():
        return column.to_numpy(zero_copy_only=False).tolist()
    return column.to_pylist()


_FORMATS = {
    "arrow": lambda c: c,
    "numpy": lambda c: c.to_numpy(zero_copy_only=False),
    "pandas": lambda c: c.to_pandas(),
    "list": _list,
}


# ---- results

def _wrong(name, sql, value, row):
    shown = repr(value)
    if len(shown) > 200:
        shown = shown[:200] + "…"
    return Failure(RESULT, "TypeError", f"function {name} returned {shown} ({type(value).__name__}), which is no {sql}", "", row)


def _plain(value, t):
    """What pyarrow doesn't take as it is."""
    import pyarrow as pa
    if value is None:
        return None
    if pa.types.is_map(t) and isinstance(value, dict):
        value = list(value.items())
    if pa.types.is_map(t) and isinstance(value, list):
        return [(_plain(k, t.key_type), _plain(v, t.item_type)) for k, v in value]
    if (pa.types.is_list(t) or pa.types.is_fixed_size_list(t)) and isinstance(value, (list, tuple)):
        return [_plain(v, t.value_type) for v in value]
    if pa.types.is_struct(t) and isinstance(value, dict):
        return {f.name: _plain(value.get(f.name), f.type) for f in t}
    if hasattr(value, "bytes") and type(value).__name__ == "UUID":
        return value.bytes
    if type(value).__module__.partition(".")[0] == "numpy" and not isinstance(value, (float, int, str, bytes)):
        return value.tolist() if not pa.types.is_timestamp(t) else value
    return value


def _from_values(values, t, sql, name):
    """Python values, one a row."""
    import pyarrow as pa
    plain = plain_type(t, uuids=False)
    try:
        array = pa.array(values, type=plain)
    except _CONVERSION:
        done = []
        for row, value in enumerate(values):  # one by one: which is it?
            try:
                done.append(pa.array([_plain(value, t)], type=plain))
            except _CONVERSION:
                raise _wrong(name, sql, value, row) from None
        array = pa.concat_arrays(done) if done else pa.array([], type=plain)
    return declared_array(array, t)


def _from_numpy(a, t, sql, name):
    import pyarrow as pa
    t, declared = plain_type(t, uuids=False), t
    if a.ndim == 2 and (pa.types.is_list(t) or pa.types.is_fixed_size_list(t)) and a.dtype.kind in "iufb":
        np = _numpy()
        flat = pa.array(np.ascontiguousarray(a).reshape(-1)).cast(t.value_type)
        if pa.types.is_fixed_size_list(t):
            if a.shape[1] != t.list_size:
                raise Failure(RESULT, "TypeError", f"function {name} returned {a.shape[1]} values a row, which is no {sql}")
            return declared_array(pa.FixedSizeListArray.from_arrays(flat, type=t), declared)
        offsets = pa.array(np.arange(0, a.size + 1, a.shape[1] or 1, dtype=np.int32)[:a.shape[0] + 1])
        return declared_array(pa.ListArray.from_arrays(offsets, flat, type=t), declared)
    if a.ndim > 1 or a.dtype.kind == "O":
        return _from_values([_plain(v, t) for v in (a.tolist() if a.ndim == 1 else list(a))], declared, sql, name)
    if a.ndim == 0:
        raise Failure(RESULT, "TypeError", f"function {name} returned one value ({a.dtype}) for a batch")
    return declared_array(pa.array(a, type=t), declared)


def convert(result, rows, t, sql, name):
    """What the function returned for a batch of so many rows, as an array of type t."""
    import pyarrow as pa
    module = type(result).__module__.partition(".")[0]
    if isinstance(result, (str, bytes, dict, pa.RecordBatch, pa.Table)) or not hasattr(result, "__len__"):
        raise Failure(RESULT, "TypeError", f"function {name} returned {type(result).__name__} for a batch: an array, a Series or a list of "
                      f"{rows} values is wanted")
    if module == "torch":
        result = result.detach().cpu().numpy()
        module = "numpy"
    if len(result) != rows:
        raise Failure(RESULT, "ValueError", f"function {name} returned {len(result)} values for {rows} rows")
    try:
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
            if isinstance(result, pa.ChunkedArray):
                result = pa.concat_arrays(result.chunks) if result.num_chunks else pa.array([], result.type)
        if isinstance(result, pa.Array):
            return declared_array(result, t)
        if module == "pandas":
            return declared_array(pa.Array.from_pandas(result, type=plain_type(t, uuids=False)), t)
        if module == "numpy":
            return _from_numpy(result, t, sql, name)
        return _from_values(result if isinstance(result, list) else list(result), t, sql, name)
    except _CONVERSION as e:
        of = getattr(result, "type", None) or getattr(result, "dtype", type(result).__name__)
        raise Failure(RESULT, type(e).__name__, f"function {name} returned {of}, which is no {sql}: {e}") from None


# ---- functions

_NO_FILE = "<dynamic-code>"  # what cloudpickle puts for a file's name


def _named_code(code, filename):
    consts = tuple(_named_code(c, filename) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=filename if code.co_filename == _NO_FILE else code.co_filename, co_consts=consts)


def _name_files(value, filename, depth=2):
    """Functions that came by value say again where they were written, so that tracebacks show their lines."""
    if isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, types.FunctionType) and value.__code__.co_filename == _NO_FILE:
        value.__code__ = _named_code(value.__code__, filename)
        for v in list(value.__globals__.values()) if depth else ():
            if isinstance(v, (types.FunctionType, type)):
                _name_files(v, filename, depth - 1)
    elif isinstance(value, type):
        for v in vars(value).values():
            if isinstance(v, types.FunctionType):
                _name_files(v, filename, depth - 1)


def _with_constants(call, fixed):
    """Some arguments are the same for all rows: (True, column) or (False, value)."""
    places, named = fixed["args"], fixed["kwargs"]

    def with_constants(*columns):
        return call(*[columns[v] if column else v for column, v in places],
                    **{k: columns[v] if column else v for k, (column, v) in named.items()})

    return with_constants


_instances: dict = {}  # of classes, by their payload's hash: methods of one object share it


def _instance(key, payload, filenames):
    if key not in _instances:
        state = pickle.loads(payload)
        for filename in filenames:
            _name_files(state["cls"], filename)
        _instances[key] = state["cls"](*state["args"], **state["kwargs"])
    return _instances[key]


class Function:
    """A loaded one. log(function, failure): what on_error="log" says."""

    def __init__(self, name, payload, log):
        self.name, self.log = name, log
        outer = pickle.loads(payload)
        for path in outer["sys_path"]:
            if path not in sys.path and os.path.isdir(path):
                sys.path.append(path)
        for filename, text in outer["sources"].items():  # for tracebacks of what is no file here
            if not os.path.exists(filename):
                lines = text.splitlines(True)
                linecache.cache[filename] = (len(text), None, lines, filename)
        spec = pickle.loads(outer["body"])
        self.kind, self.formats, self.on_error = spec["kind"], spec["formats"], spec["on_error"]
        self.at_once = max(1, spec["max_concurrency"])
        self.call = spec["function"]
        filenames = list(outer["sources"])[:1]
        for filename in filenames:
            _name_files(self.call, filename)
        if outer["state"]:
            self.call = getattr(_instance(outer["state_key"], outer["state"], filenames), spec["method"])
        if spec["fixed"]:
            self.call = _with_constants(self.call, spec["fixed"])
        self.loop = asyncio.new_event_loop() if "async" in self.kind else None

    def run(self, columns, rows, t, sql):
        """One batch. Raises Failure."""
        columns = [plain_array(c) for c in columns]
        if self.kind in ("batch", "async batch"):
            return self._batch(columns, rows, t, sql)
        values = zip(*[_list(c) for c in columns]) if columns else iter([()] * rows)
        if self.loop:
            results = self.loop.run_until_complete(self._gather(values))
        else:
            results = self._rows(values)
        return self._checked(results, t, sql)

    def _checked(self, results, t, sql):
        if self.on_error == "raise":
            return _from_values(results, t, sql, self.name)
        try:
            return _from_values(results, t, sql, self.name)
        except Failure:
            for i in range(len(results)):  # a value of the wrong type is an error of its row
                try:
                    _from_values(results[i:i + 1], t, sql, self.name)
                except Failure as f:
                    f.row = i
                    results[i] = self._forgive(f)
            return _from_values(results, t, sql, self.name)

    def _forgive(self, f):
        if self.on_error == "raise":
            raise f
        if self.on_error == "log":
            self.log(self.name, f)
        return None

    def _rows(self, values):
        call, out = self.call, []
        generator = self.kind == "generator"
        row = iter(values)
        while True:
            try:
                if generator:
                    for args in row:
                        r = call(*args)
                        out.append(None if r is None else list(r))
                else:
                    for args in row:
                        out.append(call(*args))
                return out
            except BaseException as e:  # noqa: B902: SystemExit too is the function's
                out.append(self._forgive(failure_of(e, USER, len(out))))

    async def _one(self, i, args, gate):
        async with gate:
            try:
                if self.kind == "async generator":
                    return [v async for v in self.call(*args)]
                return await self.call(*args)
            except BaseException as e:  # noqa: B902
                if isinstance(e, asyncio.CancelledError) and asyncio.current_task().cancelling():
                    raise
                return self._forgive(failure_of(e, USER, i))

    async def _gather(self, values):
        gate = asyncio.Semaphore(self.at_once)
        tasks = [asyncio.ensure_future(self._one(i, args, gate)) for i, args in enumerate(values)]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    def _batch(self, columns, rows, t, sql):
        import pyarrow as pa
        try:
            try:
                args = [_FORMATS[self.formats[min(i, len(self.formats) - 1)]](c) for i, c in enumerate(columns)]
                r = self.call(*args)
                if inspect.isawaitable(r):
                    r = self.loop.run_until_complete(r)
            except BaseException as e:  # noqa: B902
                raise failure_of(e, USER) from None
            return convert(r, rows, t, sql, self.name)
        except Failure as f:
            self._forgive(f)
            return declared_array(pa.nulls(rows, plain_type(t, uuids=False)), t)
