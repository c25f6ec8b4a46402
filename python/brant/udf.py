# SPDX-License-Identifier: Apache-2.0
"""Functions of the user: `@brant.func`, `@brant.func.batch`, `@brant.cls` with `@brant.method`.

Called with expressions they are expressions; called with plain values they run here, at once. In a query they run in pools of Python
processes beside each worker (docs/udf.md); they travel by value (cloudpickle), so nothing of the user's is installed there, but the
packages that they import."""
from __future__ import annotations

import collections.abc
import datetime
import functools
import hashlib
import inspect
import json
import linecache
import os
import pickle
import re
import sys
import sysconfig
import types
import typing
import weakref

from brant import errors, literal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brant._types import Any, Callable

_ON_ERROR = ("raise", "log", "ignore")
_FORMATS = ("arrow", "numpy", "pandas", "list")
_SOURCE_BYTES = 1 << 18  # of a file that goes along for tracebacks
_MAX_CONCURRENCY = 32    # coroutines at once, unless said
_registered: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()  # session -> names

_GENERATORS = (collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator, collections.abc.AsyncIterator,
               collections.abc.AsyncIterable, collections.abc.AsyncGenerator)


def _invalid(message):
    return errors.InvalidError(message, "INVALID", "USER")


# ---- options


def bytes_of(value: Any) -> int:
    """A number of bytes, given as one or as a text."""
    if value is None:
        return 0
    if isinstance(value, str):
        m = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt]?)(i?)b?\s*", value, re.I)
        if not m:
            raise _invalid(f"memory={value!r}: a number of bytes, or a text as '2GB' or '512MiB' is wanted")
        base = 1000 if not m.group(3) and value.strip().lower().endswith("b") else 1024
        value = float(m.group(1)) * base ** "kmgt".index(m.group(2).lower()) * base if m.group(2) else float(m.group(1))
    if not value > 0:
        raise _invalid(f"memory={value!r}: it must be more than 0")
    return int(value)


def _number(name, value, least, whole=True):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (whole and value != int(value)) or not value >= least:
        raise _invalid(f"{name}={value!r}: a {'whole ' if whole else ''}number, at least {least}, is wanted")
    return int(value) if whole else float(value)


class _Options:
    """What a decorator was given, checked."""

    def __init__(self, *, return_dtype=None, batch=False, batch_size=None, format=None, concurrency=None, max_concurrency=None, cpus=None,
                 gpus=None, memory=None, max_retries=None, on_error=None, timeout=None, deterministic=None, interpreter=None, name=None, **wrong):
        if wrong:
            known = [n for n in inspect.signature(_Options).parameters if n != "wrong"]
            raise _invalid(f"functions have no option {', '.join(map(repr, wrong))}; there are {', '.join(known)}")
        seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout
        self.return_dtype, self.batch, self.name = return_dtype, bool(batch), name
        self.batch_size = 0 if batch_size is None else _number("batch_size", batch_size, 1)
        self.concurrency = 0 if concurrency in (None, "auto") else _number("concurrency", concurrency, 1)
        self.max_concurrency = _MAX_CONCURRENCY if max_concurrency is None else _number("max_concurrency", max_concurrency, 1)
        self.cpus = 0.0 if cpus is None else _number("cpus", cpus, 0, whole=False)
        self.gpus = 0.0 if gpus is None else _number("gpus", gpus, 0, whole=False)
        self.memory = bytes_of(memory)
        self.max_retries = 2 if max_retries is None else _number("max_retries", max_retries, 0)
        self.timeout_ms = 0 if seconds is None else max(1, int(_number("timeout", seconds, 0.001, whole=False) * 1000))
        self.deterministic = True if deterministic is None else bool(deterministic)
        self.interpreter = interpreter
        if on_error not in (None, *_ON_ERROR):
            raise _invalid(f"on_error={on_error!r}: one of {', '.join(_ON_ERROR)} is wanted")
        self.on_error = on_error or "raise"
        if format not in (None, *_FORMATS):
            raise _invalid(f"format={format!r}: one of {', '.join(_FORMATS)} is wanted")
        if format and not batch:
            raise _invalid("format= is for batch functions (batch=True)")
        self.format = format


def _kind(fn, batch):
    if batch:
        return "async batch" if inspect.iscoroutinefunction(fn) else "batch"
    if inspect.isasyncgenfunction(fn):
        return "async generator"
    if inspect.iscoroutinefunction(fn):
        return "async"
    return "generator" if inspect.isgeneratorfunction(fn) else "row"


def _hints(fn):
    try:
        return typing.get_type_hints(fn)
    except Exception:  # names that exist only for type checkers
        return {k: v for k, v in getattr(fn, "__annotations__", {}).items() if not isinstance(v, str)}


def _optional(t):
    """T of T | None."""
    if typing.get_origin(t) in (typing.Union, getattr(types, "UnionType", None)):
        rest = [a for a in typing.get_args(t) if a is not type(None)]
        return rest[0] if len(rest) == 1 else t
    return t


def _return_type(fn, o, kind):
    generator = kind.endswith("generator")
    dtype = o.return_dtype
    if dtype is None and not o.batch:
        dtype = _optional(_hints(fn).get("return"))
        if dtype is not None and generator:
            origin, args = typing.get_origin(dtype), typing.get_args(dtype)
            dtype = _optional(args[0]) if origin in _GENERATORS and args else None
    if dtype is None or dtype is type(None):
        raise _invalid(f"what does {fn.__qualname__} return? Give return_dtype= (a type of Python, numpy or pyarrow, or a name as 'BIGINT')"
                       + ("" if o.batch else " or annotate it: def f(…) -> int"))
    text = literal.type_name(dtype)
    return text + "[]" if generator else text


def _formats(fn, o, skip):
    """What each parameter of a batch function wants, by its annotation."""
    hints, out = _hints(fn), []
    for p in list(inspect.signature(fn).parameters.values())[skip:]:
        t = _optional(hints.get(p.name))
        module = getattr(typing.get_origin(t) or t, "__module__", "").partition(".")[0]
        by_hint = {"numpy": "numpy", "pandas": "pandas", "pyarrow": "arrow"}.get(module)
        if by_hint is None and (typing.get_origin(t) or t) in (list, collections.abc.Sequence):
            by_hint = "list"
        out.append(o.format or by_hint or "arrow")
    return out or [o.format or "arrow"]


# ---- the payload


def _is_installed(path):
    roots = {os.path.realpath(sysconfig.get_paths()[k]) for k in ("stdlib", "platstdlib", "purelib", "platlib")}
    real = os.path.realpath(path)
    return any(real == r or real.startswith(r + os.sep) for r in roots)


def _sys_path():
    """Where the user's own modules are: of use to workers on this machine."""
    return [p for p in (os.path.abspath(p or os.getcwd()) for p in sys.path) if os.path.isdir(p) and not _is_installed(p)]


def _sources(*functions):
    out = {}
    for fn in functions:
        code = getattr(inspect.unwrap(fn), "__code__", None) if fn is not None else None
        lines = linecache.getlines(code.co_filename) if code else []
        text = "".join(lines)
        if lines and len(text) <= _SOURCE_BYTES:
            out[code.co_filename] = text
    return out


def _dumps(spec, *owners):
    try:
        import cloudpickle
    except ImportError:
        raise _invalid("functions travel by cloudpickle, which is missing here: pip install cloudpickle") from None
    modules = []
    for owner in owners:
        module = sys.modules.get(getattr(owner, "__module__", None) or "")
        path = getattr(module, "__file__", None)
        if module is None or module.__name__ == "__main__" or not path or _is_installed(path) or module.__name__.split(".")[0] == "brant":
            continue
        if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            modules.append(module)
    try:
        return cloudpickle.dumps(spec, protocol=5)
    except Exception as e:
        raise _invalid(f"{spec['name']} cannot be sent to workers: {type(e).__name__}: {e}. What it refers to must be picklable: open files, "
                       "connections and locks belong into the function, or into __init__ of a @brant.cls") from e
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


class _Function:
    """A function as the engine knows it: name, options, payload."""

    def __init__(self, options, name, return_type, payload, kind, state_key=""):
        self.options, self.return_type, self.payload = options, return_type, payload
        of_processes = (state_key, options.concurrency, options.cpus, options.gpus, options.memory, options.interpreter)
        pool = hashlib.sha256(repr(of_processes).encode()).hexdigest() if state_key else ""  # methods with the same of these share processes
        self.json = json.dumps({"shown": name, "kind": kind, "on_error": options.on_error, "max_concurrency": options.max_concurrency, "pool": pool})
        key = repr((return_type, sorted((k, v) for k, v in vars(options).items() if k != "return_dtype"))).encode()
        digest = hashlib.sha256(hashlib.sha256(key).digest() + payload).hexdigest()[:12]
        self.name = re.sub(r"\W+", "_", name).strip("_").lower()[:40] + "_" + digest

    def __eq__(self, other):
        return isinstance(other, _Function) and other.name == self.name

    def __hash__(self):
        return hash(self.name)

    def register(self, session):
        """Tell a session, once."""
        names = _registered.setdefault(session, set())
        if self.name in names:
            return
        o = self.options
        session._native.register_function(
            self.name, self.return_type, self.payload, options_json=self.json, interpreter=o.interpreter or session.interpreter, batch_size=o.batch_size,
            concurrency=o.concurrency, cpus=o.cpus, gpus=o.gpus, memory_bytes=o.memory, max_retries=o.max_retries, timeout_ms=o.timeout_ms,
            deterministic=o.deterministic)
        names.add(self.name)


# ---- calls


def _has_expr(args, kwargs):
    from brant.expr import Expr
    return any(isinstance(a, Expr) for a in args) or any(isinstance(a, Expr) for a in kwargs.values())


class _Callable:
    """What func and method give: called with expressions an expression, else the function itself."""

    def __init__(self, fn, options, owner=None):
        self._fn, self._options, self._owner = fn, options, owner
        self._call = _kind(fn, options.batch)
        self._return_type = _return_type(fn, options, self._call)
        self._arguments = _formats(fn, options, 1 if owner else 0) if options.batch else []
        functools.update_wrapper(self, fn)

    def _here(self):
        return getattr(self._owner._local(), self._fn.__name__) if self._owner else self._fn

    def __call__(self, *args, **kwargs):
        if _has_expr(args, kwargs):
            return self._expr(args, kwargs)
        return self._here()(*args, **kwargs)

    def __repr__(self):
        return f"<brant function {self._fn.__qualname__} -> {self._return_type}>"

    def _expr(self, args, kwargs):
        from brant import expr
        signature = inspect.signature(self._fn)
        try:
            signature.bind(*(((None,) if self._owner else ()) + args), **kwargs)
        except TypeError as e:
            raise _invalid(f"{self._fn.__qualname__}: {e}") from None
        columns = []

        def place(value):
            if isinstance(value, expr.Expr):
                columns.append(value)
                return True, len(columns) - 1
            return False, value

        fixed = {"args": [place(a) for a in args], "kwargs": {k: place(v) for k, v in kwargs.items()}}
        if fixed["args"] == [(True, i) for i in range(len(columns))] and not kwargs:
            fixed = None
        names = list(signature.parameters)[1 if self._owner else 0:]
        positions = [i for i, (column, _) in enumerate(fixed["args"]) if column] if fixed else list(range(len(columns)))
        positions += [names.index(k) for k, (column, _) in fixed["kwargs"].items() if column and k in names] if fixed else []
        formats = [self._arguments[min(i, len(self._arguments) - 1)] for i in positions] if self._arguments else []
        function = self._function(fixed, formats)
        called = expr.call(function.name, *columns, udfs=(function,))
        called.name = columns[0].name or (self._shown_name(columns[0]))
        return called.explode() if self._call.endswith("generator") else called

    def _shown_name(self, first):
        """Of its column, unless the first argument or the user gives it one."""
        if self._fn.__name__ == "<lambda>":
            return first.output_name()
        return self._owner._cls.__name__ if self._owner and self._fn.__name__ == "_brant_call" else self._fn.__name__

    def _function(self, fixed, formats):
        o, owner = self._options, self._owner
        cls = owner._cls if owner else None
        name = self._fn.__qualname__.replace("._brant_call", ".__call__")
        spec = {"name": name, "kind": self._call, "formats": formats or ["arrow"], "on_error": o.on_error,
                "max_concurrency": o.max_concurrency, "function": None if owner else self._fn, "fixed": fixed,
                "method": self._fn.__name__ if owner else None}
        body = _dumps(spec, cls or self._fn)
        state, key = owner._state() if owner else (None, "")
        payload = pickle.dumps({"sys_path": _sys_path(), "sources": _sources(self._fn, getattr(cls, "__init__", None)), "body": body,
                                "state": state, "state_key": key}, 5)
        return _Function(o, o.name or name.rpartition("<locals>.")[2], self._return_type, payload, self._call, key)


def _decorate(make, fn, options):
    """With or without parentheses."""
    if fn is None:
        o = _Options(**options)
        return lambda f: make(f, o)
    if not callable(fn):
        raise _invalid(f"a function is wanted, not {fn!r}: options are given by name")
    return make(fn, _Options(**options))


class _Func:
    """The decorator `brant.func`, and `brant.func.batch`."""

    def __call__(self, fn: Callable[..., Any] | None = None, **options: Any) -> Any:
        """A function for use in queries, row by row: each argument is a value (None for NULL), what it returns is a value of return_dtype,
        which comes from the annotation of the result when it isn't given. `async def`: the calls of a batch run at once, at most
        max_concurrency of them. With yield: each row becomes as many rows as it yields.

        Options: return_dtype; batch=True (or brant.func.batch): see there; batch_size: rows a batch; concurrency: processes on all workers
        (default: one a core); cpus, gpus: that one process takes (gpus sets the devices that it sees); memory: of one process, in bytes or
        as '2GB'; max_retries: of a batch whose process died or took longer than timeout (seconds); on_error: raise, log or ignore, where
        the latter two give NULL for the row (batch functions: for the batch); deterministic=False: its results differ from call
        to call; interpreter: another Python."""
        return _decorate(_Callable, fn, options)

    def batch(self, fn: Callable[..., Any] | None = None, **options: Any) -> Any:
        """A function of whole batches: each argument is an array of as many rows as the batch has, and so must be the result. Which kind
        comes from the annotations (pyarrow.Array, numpy.ndarray, pandas.Series, list) or from format= (arrow, numpy, pandas, list)."""
        return _decorate(_Callable, fn, {**options, "batch": True})


func = _Func()


class _Method:
    """A method of a brant.cls with options of its own."""

    def __init__(self, fn, options):
        self.fn, self.options = fn, options
        functools.update_wrapper(self, fn)


def method(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Options of one method of a `@brant.cls`: those of brant.func that say how it is called (return_dtype, batch, format, batch_size,
    on_error, timeout, max_retries, max_concurrency, deterministic)."""
    return _decorate(lambda f, o: _Method(f, (o, options)), fn, options)


class _Instance:
    """What a class of brant.cls gives when it's called: nothing is made here until a method is called with plain values."""

    def __init__(self, maker, args, kwargs):
        self._cls, self._args, self._kwargs, self._maker = maker._cls, args, kwargs, maker
        self._made, self._callables, self._sent = None, {}, None

    def _local(self):
        if self._made is None:
            self._made = self._cls(*self._args, **self._kwargs)
        return self._made

    def _state(self):
        """What each process makes the object from, and its hash: pickled once, the same for all methods."""
        if self._sent is None:
            spec = {"name": self._cls.__qualname__, "cls": self._cls, "args": self._args, "kwargs": self._kwargs}
            data = _dumps(spec, self._cls)
            self._sent = data, hashlib.sha256(data).hexdigest()
        return self._sent

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = inspect.getattr_static(self._cls, name, None)
        options = self._maker._methods.get(name)
        if options is None and not inspect.isfunction(found):
            return getattr(self._local(), name)
        if name not in self._callables:
            merged = {**self._maker._options, **(options or {})}
            self._callables[name] = _Callable(found, _Options(**merged), owner=self)
        return self._callables[name]

    def __call__(self, *args, **kwargs):
        return self.__getattr__("_brant_call")(*args, **kwargs)

    def __repr__(self):
        return f"<brant instance of {self._cls.__qualname__}>"


class _Class:
    """The class itself; called, an _Instance."""

    def __init__(self, cls, options):
        self._options, self._methods = options, {}
        for name, value in list(vars(cls).items()):
            if isinstance(value, _Method):
                self._methods[name] = value.options[1]
                setattr(cls, name, value.fn)
        if "__call__" in vars(cls):
            self._methods["_brant_call"] = self._methods.pop("__call__", {})
            cls._brant_call = _named(vars(cls)["__call__"], "_brant_call")
        self._cls = cls
        functools.update_wrapper(self, cls, updated=())

    def __call__(self, *args, **kwargs):
        if _has_expr(args, kwargs):
            name = self._cls.__name__
            raise _invalid(f"{name}(…) makes the object, once a process; columns go to its methods: {name}(…)(col(…)), {name}(…).method(col(…))")
        return _Instance(self, args, kwargs)

    def __repr__(self):
        return f"<brant class {self._cls.__qualname__}>"


def _named(fn, name):
    """The same function under another name."""
    copy = types.FunctionType(fn.__code__, fn.__globals__, name, fn.__defaults__, fn.__closure__)
    copy.__kwdefaults__, copy.__annotations__, copy.__doc__ = fn.__kwdefaults__, dict(fn.__annotations__), fn.__doc__
    copy.__module__, copy.__qualname__ = fn.__module__, fn.__qualname__.rpartition(".")[0] + "." + name
    return copy


def cls(klass: type | None = None, **options: Any) -> Any:
    """A class whose instance is made once a process, with the arguments given here: models, connections. Its methods (and __call__) are
    functions as of brant.func; `@brant.method` gives one its options. Options: those of brant.func, for all methods."""
    _Options(**options)  # checked now
    return (lambda c: _Class(c, options)) if klass is None else _Class(klass, options)
