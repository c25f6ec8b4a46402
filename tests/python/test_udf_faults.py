# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in users' functions, on two real workers: each is a clear error or is made good, never a hang, and the session lives on."""
import ctypes
import os
import re
import signal
import subprocess
import sys
import time

import brant
import pytest
from cgroup import Cgroup
from test_udf import run, same

LIMIT_S = 60


@pytest.fixture(scope="module")
def s():
    with brant.Session(workers=2, threads=1, memory=1 << 30, distribute="always") as s:
        yield s


@pytest.fixture(autouse=True)
def bounded(s):
    """No query takes long, and after each the session works."""
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < LIMIT_S
    assert run(s, "select sum({0}(i))::bigint s from range(100) t(i)", same).to_pylist() == [{"s": 4950}]


def fails(s, f, sql="select sum({0}(i))::bigint from range(1000) t(i)", kind=brant.Error):
    with pytest.raises(kind) as e:
        run(s, sql, f)
    print("\n" + str(e.value))
    assert f._function(None, f._arguments).name not in str(e.value)  # the name that the user gave, not the one in SQL
    return str(e.value)


def test_it_raises(s):
    @brant.func
    def inverse(x: int) -> float:
        return 1 / (x - 700)  # of x

    text = fails(s, inverse, "select sum({0}(i)) from range(1000) t(i)", brant.errors.ExecutionError)
    assert "ZeroDivisionError: division by zero" in text and "# of x" in text and "test_udf_faults.py" in text
    assert "inverse" in text and "task" in text and re.search(r"in rows (\d+) to \1 of task", text)  # one row, counted in its task


def test_a_segmentation_fault(s):
    @brant.func(max_retries=1)
    def crash(x: int) -> int:
        return ctypes.string_at(0) if x == 50 else x

    text = fails(s, crash)
    assert "signal 11 (SIGSEGV)" in text and "Segmentation fault" in text and "crash" in text
    assert re.search(r"in rows \d+ to \d+ of task", text)


def test_os_exit(s):
    @brant.func(max_retries=0)
    def leave(x: int) -> int:
        os._exit(7)

    assert "exit code 7" in fails(s, leave)


def test_a_death_is_made_good(s, tmp_path):
    marker = str(tmp_path / "once")

    @brant.func(batch_size=100)
    def fragile(x: int) -> int:
        if x == 500 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    assert run(s, "select sum({0}(i))::bigint s from range(1000) t(i)", fragile).to_pylist() == [{"s": sum(range(1000))}]
    assert os.path.exists(marker)


def test_it_hangs(s):
    @brant.func(timeout=0.5, max_retries=1)
    def hang(x: int) -> int:
        time.sleep(1000)

    begin = time.monotonic()
    text = fails(s, hang)
    assert "longer than 0.5 s" in text and "hang" in text and time.monotonic() - begin < 30


def test_timeouts_count_the_batch_alone(s):
    @brant.func.batch(return_dtype=int, timeout=5, concurrency=1, batch_size=50)
    def slowish(x: list):
        time.sleep(0.3)
        return x

    # 20 batches of 0.3 s for one process
    assert run(s, "select sum({0}(i))::bigint s from range(1000) t(i)", slowish).to_pylist() == [{"s": sum(range(1000))}]


def test_two_megabytes_of_stderr(s):
    @brant.func
    def chatty(x: int) -> int:
        print("x" * 2000, file=sys.stderr)
        print("y" * 200)
        return x

    assert run(s, "select sum({0}(i))::bigint s from range(1000) t(i)", chatty).to_pylist() == [{"s": sum(range(1000))}]

    @brant.func(max_retries=0)
    def last_words(x: int) -> int:
        sys.stderr.write("z" * 2_000_000 + "\nthe last words\n")
        os._exit(1)

    text = fails(s, last_words)
    assert "the last words" in text and len(text) < 4000


def test_the_wrong_length(s):
    f = brant.func.batch(lambda x: [1, 2, 3], return_dtype=int, batch_size=50)
    assert "returned 3 values for 50 rows" in fails(s, f)


def test_the_wrong_type(s):
    f = brant.func(lambda x: "seven" if x == 7 else x, return_dtype=int)
    text = fails(s, f)
    assert "'seven' (str), which is no BIGINT" in text and "rows 7 to 7" in text
    f = brant.func.batch(lambda x: x.cast("string"), return_dtype="DATE")
    assert "no DATE" in fails(s, f, "select max({0}(i)) from range(1000) t(i)")


def test_a_missing_package(s, tmp_path):
    (tmp_path / "only_here_abc.py").write_text("def f(x):\n    return x\n")
    sys.path.insert(0, str(tmp_path))
    try:
        import only_here_abc
        f = brant.func(lambda x: only_here_abc.f(x), return_dtype=int)
        made = f._function(None, [])
    finally:
        sys.path.remove(str(tmp_path))
        (tmp_path / "only_here_abc.py").unlink()
    made.register(s)
    with pytest.raises(brant.Error, match=r"can't be loaded on worker [12]: ModuleNotFoundError.*package 'only_here_abc' is missing for .* on this worker"):
        s.execute(f"select sum({made.name}(i)) from range(10) t(i)").arrow()


def test_no_interpreter(s):
    f = brant.func(lambda x: x, return_dtype=int, interpreter="/no/such/python", max_retries=0)
    assert "/no/such/python" in fails(s, f)


def test_a_leak(s):
    kept = []

    @brant.func(memory="300MB", max_retries=1, batch_size=1000, concurrency=1)  # a batch alone is too much
    def leak(x: int) -> int:
        kept.append(bytearray(2 << 20))
        time.sleep(0.002)
        return x

    text = fails(s, leak)
    assert "more than its limit of 286 MiB" in text and "option memory" in text


def test_on_error(s):
    def bad(x):
        if x % 10 == 0:
            raise ValueError(f"no {x}")
        return x

    for mode in ("ignore", "log"):
        f = brant.func(bad, return_dtype=int, on_error=mode)
        assert run(s, "select count({0}(i))::bigint n, count(*)::bigint m from range(1000) t(i)", f).to_pylist() == [{"n": 900, "m": 1000}]
    f = brant.func.batch(lambda x: [bad(v) for v in x.to_pylist()], return_dtype=int, on_error="ignore", batch_size=7)
    n = run(s, "select count({0}(i))::bigint n from range(70) t(i)", f).to_pylist()[0]["n"]
    assert 0 <= n < 70  # batches with a multiple of ten are NULL as a whole


def test_cancel_ends_the_process_too(s, tmp_path):
    folder = str(tmp_path)

    @brant.func
    def forever(x: int) -> int:
        open(os.path.join(folder, str(os.getpid())), "w").close()
        time.sleep(1000)

    made = forever._function(None, [])
    made.register(s)
    r = s.execute(f"select sum({made.name}(i)) from range(10) t(i)")
    wait_for(lambda: os.listdir(folder), "the function begins")
    begin = time.monotonic()
    r.cancel()
    with pytest.raises(brant.errors.CancelledError):
        r.arrow()
    wait_for(lambda: not any(is_udf(int(pid)) for pid in os.listdir(folder)), "the process is gone")
    took = time.monotonic() - begin
    print(f"\ncancelled, and the process ended, in {took:.2f} s")
    assert took < 5


def wait_for(condition, what):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


def read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as f:
            return f.read()
    except OSError:
        return b""


def is_udf(pid):
    return b"udf_process" in read(pid, "cmdline")


def descendants(pid):
    parents = {}
    for p in os.listdir("/proc"):
        if p.isdigit():
            stat = read(p, "stat").rpartition(b")")[2].split()
            if stat:
                parents.setdefault(int(stat[1]), []).append(int(p))
    out, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        out += children
        todo += children
    return out


def test_nothing_is_left_of_a_session():
    before = set(descendants(os.getpid()))
    with brant.Session(workers=2, threads=1, distribute="always") as own:
        run(own, "select sum({0}(i))::bigint s from range(1000) t(i)", same)
        mine = [p for p in descendants(os.getpid()) if p not in before and is_udf(p)]
        assert len(mine) >= 2
    wait_for(lambda: not any(is_udf(p) for p in mine), "processes of a closed session are gone")


def test_a_killed_worker_takes_its_processes_along():
    before = set(descendants(os.getpid()))
    with brant.Session(workers=2, threads=1, distribute="always") as own:
        run(own, "select sum({0}(i))::bigint s from range(1000) t(i)", same)
        worker = next(p for p in descendants(os.getpid()) if p not in before and read(p, "comm").startswith(b"brant-worker"))
        under = [p for p in descendants(worker) if is_udf(p)]
        assert under
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: not any(is_udf(p) for p in under), "processes of a killed worker are gone")
        # and queries go on elsewhere
        assert run(own, "select sum({0}(i))::bigint s from range(1000) t(i)", same).to_pylist() == [{"s": 499500}]


def test_what_is_killed_says_so_in_the_end(s):
    @brant.func(max_retries=1, batch_size=10)
    def victim(x: int) -> int:
        if x == 55:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    text = fails(s, victim)
    assert "signal 9 (SIGKILL)" in text and "out of memory, or somebody killed it" in text and re.search(r"victim\(\) in rows 5\d to 5\d of task", text)


OUT_OF_MEMORY = """
import brant
@brant.func(max_retries=0, concurrency=1)
def eat(x: int) -> int:
    kept = []
    while True:
        kept.append(b"x" * (4 << 20))
with brant.init(workers=2, threads=1, memory="256MiB", distribute="always", progress=False) as s:
    lost = []
    s.subscribe(lambda e: lost.append(e) if '"worker_lost"' in e or '"executor_lost"' in e else None)
    total = lambda: brant.range(100000).agg(brant.col("id").sum().cast("BIGINT")).item()
    before = total()
    try:
        brant.range(10).select(eat(brant.col("id"))).collect()
    except brant.Error as e:
        print("SIGKILL" in str(e) and "eat()" in str(e) and "out of memory" in str(e))
    print(total() == before, lost)
"""


def test_the_kernel_takes_the_function_and_not_the_node():
    """Memory is out where nobody has set a limit for the function: its process goes, nothing else."""
    g = Cgroup(f"brant-udf-{os.getpid()}", 1200 << 20)
    try:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        r = subprocess.run([*g.prefix(), sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True, timeout=LIMIT_S, env=env)
        assert (r.returncode, r.stdout.splitlines()) == (0, ["True", "True []"]), r.stderr
        assert g.oom_kills() == 1
    finally:
        g.remove()


def test_the_log_of_a_worker_says_what_failed(capfd):
    @brant.func(on_error="log")
    def picky(x: int) -> int:
        if x == 7:
            raise ValueError("seven is not for me")
        return x

    with brant.Session(workers=1, threads=1, distribute="always") as own:
        assert run(own, "select sum({0}(i))::bigint s from range(10) t(i)", picky).to_pylist() == [{"s": 45 - 7}]
        seen = ""

        def logged():
            nonlocal seen
            seen += capfd.readouterr().err
            return "picky, row 7: ValueError: seven is not for me" in seen

        wait_for(logged, "the line in the worker's log")


NOTEBOOK = """
import brant
scale = 3
def helper(x):
    return x * scale
@brant.func
def times(x: int) -> int:
    return helper(x)
@brant.cls
class Adder:
    def __init__(self, n):
        self.n = n
    def __call__(self, x: int) -> int:
        return x + self.n + scale
    @brant.method(return_dtype=int)
    def fails(self, x):
        return 1 // (x - x)
with brant.init(workers=2, threads=1, distribute="always"):
    add = Adder(100)
    df = brant.range(10).select(times(brant.col("id")).alias("t"), add(brant.col("id")).alias("a"))
    print(sorted(zip(*df.to_pydict().values())))
    try:
        brant.range(10).select(add.fails(brant.col("id"))).collect()
    except brant.Error as e:
        print("ZeroDivisionError" in str(e) and "Adder.fails" in str(e))
    try:
        brant.range(10).select(Adder("x")(brant.col("id"))).collect()
    except brant.Error as e:
        print("Adder.__call__() failed" in str(e))
"""


@pytest.mark.parametrize("how", ["-c", "-"])
def test_functions_of_main(how):
    """As in a notebook: __main__ has no file that workers could import."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    r = subprocess.run([sys.executable, how, *([NOTEBOOK] if how == "-c" else [])], input=NOTEBOOK if how == "-" else "", capture_output=True, text=True,
                       timeout=LIMIT_S, env=env)
    assert r.returncode == 0, r.stderr
    assert r.stdout.splitlines() == [str([(3 * i, i + 103) for i in range(10)]), "True", "True"]
