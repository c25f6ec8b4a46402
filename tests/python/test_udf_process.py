# SPDX-License-Identifier: Apache-2.0
"""The process of a function, alone: every kind of function, conversions, errors, the wire."""
import asyncio
import contextlib
import datetime
import decimal
import os
import subprocess
import sys
import time
import typing
import uuid
import venv

import brant
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import udf_worker
from brant import udf, udf_run
from udf_worker import Ended, Process


def payload(f, fixed=None):
    return f._function(fixed, f._arguments).payload


@contextlib.contextmanager
def running(f, arrow_type=pa.int64(), fixed=None):
    p = Process(payload(f, fixed))
    try:
        c = udf_worker.Connection(p, arrow_type)
        assert c.open() == ("opened",)
        assert p.heard() == b"R"
        c.process = p
        yield c
    finally:
        p.popen.kill()
        p.close()


def values(answer):
    assert answer[0] == "result", answer
    return answer[2].to_pylist()


# ---- kinds of functions


def test_rows():
    @brant.func
    def f(a: int, b: str) -> str:
        return None if a is None else b * a

    with running(f, pa.string()) as c:
        assert values(c.call([pa.array([1, None, 2]), pa.array(["x", "y", "z"])])) == ["x", None, "zz"]
        assert values(c.call([pa.array([], pa.int64()), pa.array([], pa.string())])) == []


@pytest.mark.parametrize("annotation, check", [(pa.Array, "pyarrow"), (np.ndarray, "numpy"), (pd.Series, "pandas"), (list, "builtins")])
def test_batches_by_annotation(annotation, check):
    def f(x):
        if not type(x).__module__.startswith(check):
            raise TypeError(f"{type(x).__module__}, not {check}")
        return [v * 2 for v in x] if check == "builtins" else x.to_numpy() * 2 if check == "pyarrow" else x * 2

    f.__annotations__ = {"x": annotation}
    with running(udf.func.batch(return_dtype="BIGINT")(f)) as c:
        assert values(c.call([pa.array([1, 2, 3])])) == [2, 4, 6]
        assert values(c.call([pa.array(np.arange(100000))]))[-1] == 199998  # by shared memory, both ways


def test_format_option_and_mixed_annotations():
    @brant.func.batch(return_dtype=float)
    def f(a: np.ndarray, b: pd.Series, c):
        return a * b.to_numpy() + c.to_numpy()

    assert f._arguments == ["numpy", "pandas", "arrow"]
    with running(f, pa.float64()) as c:
        assert values(c.call([pa.array([1, 2]), pa.array([3.5, 4.0]), pa.array([0, 1])])) == [3.5, 9.0]

    g = brant.func.batch(lambda x: [type(x).__name__] * len(x), return_dtype=str, format="numpy")
    with running(g, pa.string()) as c:
        assert values(c.call([pa.array([1])])) == ["ndarray"]


def test_generators_give_lists():
    @brant.func
    def words(text: str) -> typing.Iterator[str]:
        yield from text.split()

    assert words._return_type == "VARCHAR[]"
    with running(words, pa.list_(pa.string())) as c:
        assert values(c.call([pa.array(["a b", "", "c"])])) == [["a", "b"], [], ["c"]]


def test_async_runs_at_once_and_keeps_to_its_bound():
    with running(_async_probe, pa.int64()) as c:
        assert max(values(c.call([pa.array(range(40))]))) == 4


_state = {"now": 0, "most": 0}


@brant.func(max_concurrency=4)
async def _async_probe(x: int) -> int:
    _state["now"] += 1
    _state["most"] = max(_state["most"], _state["now"])
    await asyncio.sleep(0.02)
    _state["now"] -= 1
    return _state["most"]


def test_async_batch_and_async_generator():
    @brant.func.batch(return_dtype=int)
    async def f(x):
        await asyncio.sleep(0)
        return x

    @brant.func
    async def g(n: int) -> typing.AsyncIterator[int]:
        for i in range(n):
            yield i

    with running(f) as c:
        assert values(c.call([pa.array([3, 4])])) == [3, 4]
    with running(g, pa.list_(pa.int64())) as c:
        assert values(c.call([pa.array([0, 2])])) == [[], [0, 1]]


def test_classes_are_made_once_a_process():
    @brant.cls
    class Counter:
        def __init__(self, start, *, step=1):
            self.start, self.step, self.made = start, step, 0

        @brant.method(return_dtype=int)
        def next(self, x):
            self.made += 1
            return self.start + self.made * self.step

        @brant.method(return_dtype="VARCHAR", batch=True)
        def whole(self, x: pa.Array):
            return [f"{self.start}:{v}" for v in x.to_pylist()]

        def __call__(self, x: int) -> int:
            return x + self.start

    counter = Counter(100, step=10)
    with running(counter.next) as c:
        assert values(c.call([pa.array([0, 0])])) == [110, 120]
        assert values(c.call([pa.array([0])])) == [130]
    with running(counter.whole, pa.string()) as c:
        assert values(c.call([pa.array([7])])) == ["100:7"]
    assert counter(5) == 105 and counter.next(0) == 110 and counter.made == 1
    assert counter._brant_call._return_type == "BIGINT"
    with running(counter._brant_call) as c:
        assert values(c.call([pa.array([7])])) == [107]


def test_constants_beside_columns():
    @brant.func
    def f(x: int, table: dict, default: str = "?") -> str:
        return table.get(x, default)

    fixed = {"args": [(True, 0), (False, {1: "one"})], "kwargs": {"default": (False, "many")}}
    with running(f, pa.string(), fixed) as c:
        assert values(c.call([pa.array([1, 2])])) == ["one", "many"]


# ---- conversions


U = uuid.UUID("0123456789abcdef0123456789abcdef")
TYPES = [
    (pa.bool_(), [True, None]), (pa.bool8(), [True, None, False]), (pa.int8(), [1, -1]), (pa.uint64(), [2**64 - 1]), (pa.float32(), [0.5, None]),
    (pa.float64(), [float("inf"), 1.0]), (pa.string(), ["ä", ""]), (pa.binary(), [b"\0x"]), (pa.date32(), [datetime.date(2026, 1, 2)]),
    (pa.timestamp("us"), [datetime.datetime(2026, 1, 2, 3, 4, 5, 6)]),
    (pa.timestamp("us", "UTC"), [datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)]),
    (pa.time64("us"), [datetime.time(1, 2, 3)]), (pa.decimal128(10, 2), [decimal.Decimal("1.25")]),
    (pa.month_day_nano_interval(), [pa.MonthDayNano([1, 2, 3])]),
    (pa.list_(pa.int32()), [[1, 2], None, []]), (pa.list_(pa.bool8()), [[True, None]]), (pa.list_(pa.float32(), 2), [[1.0, 2.0]]),
    (pa.struct([("a", pa.int64()), ("b", pa.bool8()), ("u", pa.uuid())]), [{"a": 1, "b": None, "u": U}, {"a": 1, "b": True, "u": None}]),
    (pa.map_(pa.string(), pa.bool8()), [[("a", True)]]), (pa.uuid(), [U, None]), (pa.list_(pa.uuid()), [[U, None], None])]


@pytest.mark.parametrize("make", [lambda f: brant.func(f, return_dtype=int), lambda f: brant.func.batch(f, return_dtype=int),
                                  lambda f: brant.func.batch(f, return_dtype=int, format="list")])
def test_types_come_through(make):
    with running(make(lambda x: x)) as c:
        for t, rows in TYPES:
            own = udf_worker.Connection(c.process, t)
            own.open()
            array = pa.array([udf_run._plain(r, t) for r in rows], udf_run.plain_type(t, uuids=False)).cast(t)
            got = own.call([array])
            assert values(got) == rows and got[2].type == t, t
            own.sock.close()


def test_hugeints_are_integers_in_python():
    t = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
    numbers = [2**100, -1, None, 10**38 - 1]
    array = pa.ExtensionArray.from_storage(t, pa.array([None if n is None else n.to_bytes(16, "little", signed=True) for n in numbers], pa.binary(16)))
    with running(brant.func(lambda x: -x if isinstance(x, int) else x, return_dtype="HUGEINT"), t) as c:
        got = c.call([array])[2].storage.to_pylist()
        assert [g and int.from_bytes(g, "little", signed=True) for g in got] == [-(2**100), 1, None, 1 - 10**38]


def test_more_conversions():
    text = "0123456789abcdef0123456789abcdef"
    u = uuid.UUID(text)
    f = brant.func(lambda x: uuid.UUID(text), return_dtype="UUID")
    with running(f, pa.uuid()) as c:
        assert values(c.call([pa.array([1])])) == [u]
    f = brant.func(lambda x: {"k": x}, return_dtype="MAP(VARCHAR, BIGINT)")
    with running(f, pa.map_(pa.string(), pa.int64())) as c:
        assert values(c.call([pa.array([5])])) == [[("k", 5)]]
    f = brant.func.batch(lambda x: np.arange(len(x) * 3, dtype=np.float32).reshape(-1, 3), return_dtype="FLOAT[]")
    with running(f, pa.list_(pa.float32())) as c:
        assert values(c.call([pa.array([1, 2])])) == [[0, 1, 2], [3, 4, 5]]
    with running(f, pa.list_(pa.float32(), 3)) as c:
        assert values(c.call([pa.array([1, 2])])) == [[0, 1, 2], [3, 4, 5]]
    f = brant.func.batch(lambda x: pd.Series([1.0, float("nan")]), return_dtype="DOUBLE")
    with running(f, pa.float64()) as c:
        assert values(c.call([pa.array([1, 2])])) == [1.0, None]  # NaN is NULL in pandas
    f = brant.func.batch(lambda x: x.cast("int32"), return_dtype="BIGINT")
    with running(f) as c:
        assert values(c.call([pa.array([1, 2])])) == [1, 2]


# ---- errors


def error(answer):
    assert answer[0] == "error", answer
    return answer[1], answer[2], answer[3], answer[4]


def test_an_exception_has_its_traceback_and_its_row():
    @brant.func
    def f(x: int) -> int:
        return 10 // x  # the line of the fault

    with running(f) as c:
        values(c.call([pa.array([1, 2, 3])]))
        head, kind, text, trace = error(c.call([pa.array([1, 0, 3])]))
        assert head[:4] == (1, 4, 1, 1)  # batch, first row, rows, kind
        assert (kind, text) == ("ZeroDivisionError", "integer division or modulo by zero")
        assert "the line of the fault" in trace and "test_udf_process.py" in trace and "udf_run" not in trace
        assert values(c.call([pa.array([5])])) == [2]  # it lives on


@pytest.mark.parametrize("returned, words", [
    ("[1]", "returned 1 values for 3 rows"), ("'abc'", "returned str for a batch"), ("5", "returned int"), ("pa.array(['a', 'b', 'c'])", "no int64"),
    ("['a', 'b', 'c']", "'a' (str), which is no"), ("np.array([1.5, 2, 3])", "no int64"), ("pa.table({'a': [1, 2, 3]})", "returned Table")])
def test_wrong_results_of_batches(returned, words):
    f = brant.func.batch(eval(f"lambda x: {returned}", {"pa": pa, "np": np}), return_dtype=int)
    with running(f) as c:
        head, _, text, _ = error(c.call([pa.array([1, 2, 3])]))
        assert head[3] == 3 and words in text, text
        assert head[1] == 0


def test_wrong_type_of_one_row():
    f = brant.func(lambda x: x if x < 2 else "two", return_dtype=int)
    with running(f) as c:
        head, _, text, _ = error(c.call([pa.array([0, 1, 2, 1])]))
        assert head[:4] == (0, 2, 1, 3) and "'two' (str)" in text


def test_on_error_of_rows_and_batches():
    def bad(x):
        if x % 3 == 0:
            raise ValueError(f"no {x}")
        return "wrong" if x == 4 else x

    with running(brant.func(bad, return_dtype=int, on_error="ignore")) as c:
        assert values(c.call([pa.array(range(6))])) == [None, 1, 2, None, None, 5]
    with running(brant.func(bad, return_dtype=int, on_error="log")) as c:
        assert values(c.call([pa.array(range(6))])) == [None, 1, 2, None, None, 5]
        assert c.process.heard() == b"Lfunction f, row 0: ValueError: no 0"
    with running(brant.func.batch(lambda x: 1 / 0, return_dtype=int, on_error="ignore")) as c:
        assert values(c.call([pa.array(range(3))])) == [None] * 3
    with running(brant.func.batch(lambda x: [1], return_dtype=int, on_error="ignore")) as c:
        assert values(c.call([pa.array(range(3))])) == [None] * 3


def test_sys_exit_is_an_error_and_os_exit_the_end():
    with running(brant.func(lambda x: sys.exit(3), return_dtype=int)) as c:
        assert error(c.call([pa.array([1])]))[1:3] == ("SystemExit", "3")
    with running(brant.func(lambda x: os._exit(3), return_dtype=int)) as c:
        with pytest.raises(Ended):
            c.call([pa.array([1])])
        assert c.process.popen.wait(10) == 3 and c.process.now()[0] == 1  # it was in a batch of connection 1


def test_a_constructor_that_raises():
    @brant.cls
    class Bad:
        def __init__(self):
            raise OSError("no model here")

        def f(self, x: int) -> int:
            return x

    p = Process(payload(Bad().f))
    c = udf_worker.Connection(p, pa.int64())
    head, kind, text, trace = error(c.open())
    assert head[3] == 2 and kind == "OSError" and "cannot be loaded: no model here" in text and "__init__" in trace
    c.sock.close()
    assert p.popen.wait(10) == 0  # the next process tries anew
    p.close()


def test_a_missing_package_is_named(tmp_path):
    (tmp_path / "onlyhere_xyz.py").write_text("def twice(x):\n    return 2 * x\n")
    sys.path.insert(0, str(tmp_path))
    try:
        import onlyhere_xyz
        f = brant.func(lambda x: onlyhere_xyz.twice(x), return_dtype=int)
        sent = payload(f)
        with running(f) as c:  # the folder is there: its modules are found
            assert values(c.call([pa.array([4])])) == [8]
    finally:
        sys.path.remove(str(tmp_path))
    (tmp_path / "onlyhere_xyz.py").unlink()
    p = Process(sent)
    c = udf_worker.Connection(p, pa.int64())
    _, kind, text, _ = error(c.open())
    assert kind == "ModuleNotFoundError" and "package 'onlyhere_xyz' is missing for" in text
    p.close()


def test_an_interpreter_without_pyarrow(tmp_path):
    venv.create(tmp_path / "v", with_pip=False)
    p = Process(payload(brant.func(lambda x: x, return_dtype=int)), python=str(tmp_path / "v" / "bin" / "python"))
    c = udf_worker.Connection(p, pa.int64())
    head, kind, text, _ = error(c.open())
    assert head[3] == 2 and kind == "ModuleNotFoundError" and str(tmp_path) in text and "is missing for" in text
    p.close()


# ---- the process


def test_connections_take_turns():
    @brant.func.batch(return_dtype=int)
    def f(x):
        return x

    with running(f) as a:
        b = udf_worker.Connection(a.process, pa.int64())
        assert b.open() == ("opened",)
        for i in range(4):
            a.send([pa.array([i])], 1)
            b.send([pa.array([10 + i])], 1)
        assert [values(a.answer())[0] for _ in range(4)] == [0, 1, 2, 3]
        assert [values(b.answer())[0] for _ in range(4)] == [10, 11, 12, 13]
        a.sock.close()
        assert values(b.call([pa.array([5])])) == [5]


def test_a_reader_that_does_not_read_holds_nobody_up():
    @brant.func.batch(return_dtype="VARCHAR")
    def f(x):
        return ["y" * 40000] * len(x)

    with running(f, pa.string()) as a:
        b = udf_worker.Connection(a.process, pa.string())
        b.open()
        for _ in range(50):  # 2 MB of results inline, unread
            a.send([pa.array([1])], 1)
        assert len(values(b.call([pa.array([1])]))[0]) == 40000
        assert sum(len(values(a.answer())[0]) for _ in range(50)) == 2000000


def test_garbage_ends_that_connection_alone():
    with running(brant.func(lambda x: x, return_dtype=int)) as c:
        bad = udf_worker.Connection(c.process, pa.int64())
        bad.sock.sendall(b"\xff\xff\xff\xff\x01")
        with pytest.raises(Ended):
            bad.answer()
        bad = udf_worker.Connection(c.process, pa.int64())
        bad.open()
        bad.frame(3, b"\0" * 40)
        assert error(bad.answer())[0][3] == 4
        assert values(c.call([pa.array([5])])) == [5]


def test_it_ends_with_its_worker():
    p = Process(payload(brant.func(lambda x: time.sleep(100), return_dtype=int)))
    assert p.heard() == b"R"
    p.control.close()
    assert p.popen.wait(10) == 0
    # and by the kernel, when it can't listen: the parent is killed while the function sleeps
    code = f"""import sys; sys.path[:0] = {[str(udf_worker.SCRIPT.parents[1]), os.path.dirname(__file__)]!r}
import os, time, pyarrow as pa, udf_worker, brant
f = brant.func(lambda x: time.sleep(100), return_dtype=int)
p = udf_worker.Process(f._function(None, []).payload)
c = udf_worker.Connection(p, pa.int64())
c.open(); c.send([pa.array([1])], 1)
while not p.now()[1]: time.sleep(0.01)
print(p.popen.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout
    end = time.monotonic() + 10
    while os.path.exists(f"/proc/{int(out)}/stat") and open(f"/proc/{int(out)}/stat").read().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.02)


def test_arguments_are_not_copied():
    @brant.func.batch(return_dtype="BIGINT")
    def where(x: pa.Array):
        import re
        address = x.buffers()[1].address
        for line in open("/proc/self/maps"):
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) .*memfd:test", line)
            if m and int(m.group(1), 16) <= address < int(m.group(2), 16):
                return np.ones(len(x), dtype=np.int64)
        return np.zeros(len(x), dtype=np.int64)

    with running(where) as c:
        assert set(values(c.call([pa.array(np.arange(50000))]))) == {1}


# ---- options


@pytest.mark.parametrize("options, word", [({"concurrency": 0}, "concurrency"), ({"memory": "lots"}, "memory"), ({"on_error": "skip"}, "on_error"),
                                           ({"timeout": -1}, "timeout"), ({"max_retries": 1.5}, "max_retries"), ({"format": "numpy"}, "batch"),
                                           ({"batch": True, "format": "jax"}, "format"), ({"gpus": -1}, "gpus")])
def test_wrong_options_say_so(options, word):
    with pytest.raises(brant.errors.InvalidError, match=word):
        brant.func(return_dtype=int, **options)(lambda x: x)


def test_options_are_read():
    o = brant.func(lambda x: x, return_dtype=int, memory="2GB", timeout=datetime.timedelta(seconds=2), concurrency="auto")._options
    assert (o.memory, o.timeout_ms, o.concurrency) == (2 * 10**9, 2000, 0)
    assert [udf.bytes_of(t) for t in ("512MiB", "1k", "1.5g", 100)] == [512 << 20, 1024, int(1.5 * 2**30), 100]


def test_a_type_is_needed():
    with pytest.raises(brant.errors.InvalidError, match="return_dtype"):
        brant.func(lambda x: x)

    @brant.func
    def f(x) -> typing.Optional[int]:
        return x

    assert f._return_type == "BIGINT" and f(3) == 3


def test_what_cannot_travel_says_so():
    lock = __import__("threading").Lock()
    f = brant.func(lambda x: lock, return_dtype=int)
    with pytest.raises(brant.errors.InvalidError, match="cannot be sent to workers.*lock"):
        payload(f)
