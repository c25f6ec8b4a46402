# SPDX-License-Identifier: Apache-2.0
"""Shuffle data that is lost, damaged, cut off, or on a disk that is full, slow or broken, with both backends: what it cost is made again and
the rows are right, or there is one clear error. Faults follow events; that each took effect is seen in the events after it."""
import errno
import os
import pathlib
import subprocess
import time

import brantlib
import compare
import duckdb
import paths
import pytest
from harness import SECOND_S, Live, wait_for

HERE = pathlib.Path(__file__).resolve().parent
BACKENDS = ["flight", "files"]
# Every row with its comment goes through the exchange; 24 tasks read it, with work enough that most are to come when one has ended.
QUERY = ("select count(*) as n, sum(length(md5(md5(c)))) as s, sum(k) as k, sum(m) as m from (select l_orderkey as k, l_linenumber, l_comment as c, "
         "count(*) as m from {} where l_orderkey <= 2000000 group by all)")
# No second attempts: on a busy machine one beside a task that is made again would count as a run of its own.
SETTINGS = {"two_step_aggregate": "false", "partitions": "24", "broadcast_bytes": "0", "straggler_percent": "0"}
LITTLE = 128 << 20  # a quarter of it for the store: most of the rows go to disk


@pytest.fixture(scope="module")
def lines(big):
    return f"'{big}/lineitem/*.parquet'"


@pytest.fixture(scope="module")
def right(lines):
    con = duckdb.connect(config={"threads": 2})
    return [tuple(map(int, r)) for r in con.execute(QUERY.format(lines)).fetchall()]


@pytest.fixture(params=BACKENDS)
def backend(request, box):
    (box.dir / "shared").mkdir()
    return request.param


def settings(box, backend):
    return {**SETTINGS, **({"shuffle_backend": "files", "shuffle_dir": box.dir / "shared"} if backend == "files" else {})}


def place(box, backend):
    """Where shuffle files are."""
    return box.dir / "shared" if backend == "files" else box.temp


def start(box, backend, workers=2, memory=LITTLE, **more):
    """Staged, so that a stage is all there when its readers start; "eager" is flight in the other mode."""
    mode = "eager" if backend == "eager" else "staged"
    return Live(box, workers=workers, memory=memory, mode=mode, settings={**settings(box, backend), **more})


def committed_files(box, backend, stage=0):
    """Map outputs of a stage on disk, complete: {task: path}."""
    there = paths.sizes(place(box, backend), f"**/s{stage}/t*.a*.map")
    return {int(p.name.split(".")[0][1:]): p for p, size in there.items() if size > 100_000}


def finish(q):
    try:
        return [tuple(map(int, r)) for r in compare.rows_of(q.table())], q.stats()
    finally:
        q.free()


def hold_first_reader(live, q):
    """Stage 0 is committed, and readers of it have ended while others are still to come."""
    live.wait("stage_done", stage=0)
    live.wait("task_done", stage=1)


def runs(live, stage):
    """{task: how often it was assigned}"""
    n = {}
    for e in live.of("task_assigned"):
        if e["stage"] == stage:
            n[e["task"]] = n.get(e["task"], 0) + 1
    return n


def assert_made_again(live, tasks):
    """These tasks of stage 0, each once more and for this reason, and no others; somebody said which output it could not read."""
    again = {t for t, n in runs(live, 0).items() if n > 1}
    assert again == set(tasks), (again, tasks)
    for t in tasks:
        assert runs(live, 0)[t] == 2
        assert any(e["code"] == "FETCH" and e["has_lost"] and e["lost_stage"] == 0 and e["lost_task"] == t
                   for e in live.of("task_failed")), [e for e in live.of("task_failed")]
    assert not [e for e in live.of("worker_lost")], "one bad output is no reason to take a worker for dead"


def assert_clean(box):
    box.assert_clean()
    wait_for(lambda: not list((box.dir / "shared").iterdir()), 5, "the shared directory is empty")


# ---- damage to committed outputs


def flip(path):
    """One bit of each 4 KiB, so that no chunk is left whole."""
    with open(path, "r+b") as f:
        size = os.fstat(f.fileno()).st_size
        for at in range(64, size, 4096):
            f.seek(at)
            b = f.read(1)
            f.seek(at)
            f.write(bytes([b[0] ^ 0x10]))


def cut(path):
    os.truncate(path, 4096)


def empty(path):
    os.truncate(path, 0)


@pytest.mark.parametrize("damage", [flip, cut, empty, os.unlink], ids=["flipped bits", "cut", "emptied", "deleted"])
def test_damaged_file(box, backend, lines, right, damage):
    with start(box, backend) as live:
        q = live.session.submit(QUERY.format(lines))
        hold_first_reader(live, q)
        there = committed_files(box, backend)
        assert there, "nothing is on disk: the test needs less memory or more rows"
        task = max(there, key=lambda t: there[t].stat().st_size)
        damage(there[task])
        got, stats = finish(q)
        assert got == right
        if damage is os.unlink and backend == "flight":
            assert stats.retries == 0  # the store has the file open: a name is nothing to it
        else:
            assert_made_again(live, [task])
    assert_clean(box)


@pytest.mark.parametrize("damage", [flip, cut], ids=["flipped bits", "cut"])
def test_damaged_before_anybody_opened_it(box, backend, lines, right, damage):
    with start(box, backend, split_bytes="4MB") as live:
        q = live.session.submit(QUERY.format(lines))
        there = {}
        while not there:
            live.wait("task_done", stage=0)
            there = committed_files(box, backend)
        task, path = there.popitem()
        damage(path)
        assert not live.of("stage_done"), "it came too late"
        got, _ = finish(q)
        assert got == right
        assert_made_again(live, [task])
    assert_clean(box)


@pytest.mark.parametrize("damage", [flip, cut], ids=["flipped bits", "cut"])
def test_damaged_while_others_write(box, lines, right, damage):
    """Eager: readers may be anywhere in it. Who reads the damage says so, and it is made again."""
    (box.dir / "shared").mkdir()
    with start(box, "eager", split_bytes="4MB") as live:
        q = live.session.submit(QUERY.format(lines))
        there = {}
        while not there:
            live.wait("task_done", stage=0)
            there = committed_files(box, "eager")
        task, path = there.popitem()
        damage(path)
        got, _ = finish(q)
        assert got == right
        assert live.of("worker_lost") == []
        read = {e["lost_task"] for e in live.of("task_failed") if e["has_lost"] and e["lost_stage"] == 0}
        assert task in read and runs(live, 0)[task] >= 2, (read, runs(live, 0), live.of("task_failed"))
    assert_clean(box)


def test_all_files_are_damaged(box, backend, lines, right):
    with start(box, backend) as live:
        q = live.session.submit(QUERY.format(lines))
        hold_first_reader(live, q)
        there = committed_files(box, backend)
        for p in there.values():
            flip(p)
        got, _ = finish(q)
        assert got == right
        assert_made_again(live, there)
    assert_clean(box)


def test_the_files_of_a_dead_worker_are_damaged(box, lines, right):
    """Who made it is gone, and what it left is bad: made again all the same."""
    (box.dir / "shared").mkdir()
    with start(box, "files", workers=3) as live:
        q = live.session.submit(QUERY.format(lines))
        hold_first_reader(live, q)
        made = {e["task"]: e["worker"] for e in live.of("task_done") if e["stage"] == 0}
        there = committed_files(box, "files")
        victim = made[0]
        pid = live.worker_pid(victim)
        os.kill(pid, 9)
        live.wait("worker_lost")
        flip(there[0])
        got, _ = finish(q)
        assert got == right
        assert {t for t, n in runs(live, 0).items() if n > 1} == {0}
    assert_clean(box)


# Three exchanges, and a result of many rows.
CHAIN = ("select k, count(*) as n, sum(s) as s from (select k, c, sum(n) as s from (select l_orderkey as k, l_comment as c, count(*) as n "
         "from {} where l_orderkey <= 600000 group by all) group by all) group by all")


@pytest.fixture(scope="module")
def chain(lines):
    return sorted(tuple(map(int, r)) for r in duckdb.connect().execute(CHAIN.format(lines)).fetchall())


def test_damaged_result(box, lines, chain):
    """The caller is the one who finds it."""
    (box.dir / "shared").mkdir()
    with start(box, "files") as live:
        q = live.session.submit(CHAIN.format(lines))
        last = live.wait("query_started")["stages"] - 1
        live.wait("stage_done", stage=last)
        there = committed_files(box, "files", last)
        task = max(there)
        flip(there[task])
        got, _ = finish(q)
        assert sorted(got) == chain
        assert {t for t, n in runs(live, last).items() if n > 1} == {task}
    assert_clean(box)


def test_damaged_after_its_inputs_were_dropped(box, lines, right):
    """With files a committed stage's inputs go at once; what is damaged later is made again from further back."""
    (box.dir / "shared").mkdir()
    query = QUERY.replace("group by all)", "group by all order by c limit 1000000000)")
    with start(box, "files", sort_one_task_rows="1") as live:
        q = live.session.submit(query.format(lines))
        dropped = live.wait("stage_dropped")["stage"]
        readers = wait_for(lambda: [s for s in range(dropped + 1, 8) if committed_files(box, "files", s)], 60, "a stage that read it")
        there = committed_files(box, "files", readers[0])
        flip(there[max(there)])
        got, _ = finish(q)
        assert got == right
        again = {stage: {t for t, n in runs(live, stage).items() if n > 1} for stage in (dropped, readers[0])}
        assert again[readers[0]] == {max(there)} and again[dropped] == set(runs(live, dropped)), again
    assert_clean(box)


def test_memory_of_an_output_cannot_be_changed(box, lines, right):
    """A bit can't flip by a stray writer: the memory is sealed. (On the way between workers: tests/chaos.)"""
    with Live(box, workers=2, memory=1 << 30, mode="staged", settings=SETTINGS) as live:
        q = live.session.submit(QUERY.format(lines))
        live.wait("stage_done", stage=0)
        tried = 0
        for w in (live.worker_pid(1), live.worker_pid(2)):
            for fd in pathlib.Path(f"/proc/{w}/fd").iterdir():
                try:
                    if "brant-map-output" not in os.readlink(fd):
                        continue
                    with open(fd, "r+b", buffering=0) as f:
                        for do in (lambda: f.write(b"x"), lambda: f.truncate(10), lambda: f.truncate(1 << 30)):
                            with pytest.raises(PermissionError):
                                do()
                    tried += 1
                except FileNotFoundError:
                    continue  # dropped meanwhile
        assert tried, "no output was in memory"
        assert finish(q)[0] == right
        assert live.of("task_failed") == []
    box.assert_clean()


# ---- a full disk


@pytest.fixture
def small_disk(box):
    """A tmpfs where shuffle files go: mount(size); gone at the end."""
    mounted = []

    def mount(dir, size):
        if os.geteuid() != 0:
            pytest.skip("a full disk is a small tmpfs: needs root to mount it")
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", dir], check=True)
        mounted.append(dir)

    yield mount
    box.close()
    for d in mounted:
        subprocess.run(["umount", "-l", d], check=True)


def test_full_disk_is_one_clear_error(box, backend, small_disk, big):
    where = place(box, backend)
    small_disk(where, "24m")
    more = [o for k, v in settings(box, backend).items() for o in ("--set", f"{k}={v}")]
    c = box.sql(QUERY.format(f"'{big}/lineitem/*.parquet'").replace(" where l_orderkey <= 2000000", ""), workers=2, memory="128MiB",
                options=more).end()
    errors = [line for line in c.text().splitlines() if line.startswith("brant: error: ")]  # beside warnings of workers
    assert c.code == 1 and len(errors) == 1, c.text()
    for part in ("no space left", str(where), "shuffle_dir" if backend == "files" else "--temp-dir"):
        assert part in errors[0], (part, errors)
    assert_clean(box)


def test_full_disk_that_gets_room(box, backend, small_disk, lines, right):
    """The first to run out fails; then there is room, and the tasks that run again fit."""
    where = place(box, backend)
    small_disk(where, "400m")
    with start(box, backend) as live:
        live.session.run("select 1")
        filler = where / "filler"
        with open(filler, "wb") as f, pytest.raises(OSError):
            while True:
                f.write(bytes(1 << 20))
                f.flush()
        os.truncate(filler, filler.stat().st_size - (8 << 20))  # 8 MiB are left
        q = live.session.submit(QUERY.format(lines))
        failed = live.wait("task_failed")
        assert failed["code"] == "NO_SPACE", failed
        filler.unlink()
        got, stats = finish(q)
        assert got == right
        assert stats.retries >= 1
        assert {e["code"] for e in live.of("task_failed")} <= {"NO_SPACE", "CANCELLED"}
    assert_clean(box)


# ---- a slow or broken disk


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    out = tmp_path_factory.mktemp("shim") / "slow_disk.so"
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", out, HERE / "slow_disk.c", "-ldl"], check=True)
    return out


@pytest.fixture
def disk(box, shim, monkeypatch):
    """disk(ms, reads, writes, where): how shuffle files with this in their path behave from now on."""
    control = box.dir / "control"

    def set_to(ms=0, reads=0, writes=0, where=""):
        new = box.dir / "control.new"
        new.write_text(f"{ms} {reads} {writes} {where}\n")
        new.rename(control)

    for k, v in (("LD_PRELOAD", str(shim)), ("SLOW_DISK_CONTROL", str(control))):
        monkeypatch.setenv(k, v)
    return set_to


def test_slow_disk(box, backend, disk, lines, right):
    """20 ms a call: nothing fails, nothing runs twice."""
    disk(ms=20)
    with start(box, backend) as live:
        q = live.session.submit(QUERY.format(lines))
        live.wait("stage_done", stage=0)
        assert committed_files(box, backend)
        got, _ = finish(q)
        assert got == right
        assert live.of("task_failed") == [] and live.of("worker_lost") == [] and live.of("executor_lost") == []
    assert_clean(box)


def test_disk_that_cannot_be_read(box, backend, disk, lines, right):
    """Input/output errors for a while: what could not be read is made again."""
    with start(box, backend) as live:
        q = live.session.submit(QUERY.format(lines))
        hold_first_reader(live, q)
        disk(reads=errno.EIO)
        failed = live.wait("task_failed")
        assert failed["code"] == "FETCH" and failed["has_lost"] and failed["lost_stage"] == 0, failed
        assert "Input/output error" in failed["message"], failed
        disk()
        got, stats = finish(q)
        assert got == right and stats.retries >= 2
        again = {t for t, n in runs(live, 0).items() if n > 1}
        assert failed["lost_task"] in again
        assert live.of("worker_lost") == []
    assert_clean(box)


def test_disk_that_cannot_be_written(box, backend, disk, lines, right):
    disk(writes=errno.EIO)
    with start(box, backend) as live:
        q = live.session.submit(QUERY.format(lines))
        failed = live.wait("task_failed")
        assert failed["code"] == "IO" and "Input/output error" in failed["message"], failed
        disk()
        assert finish(q)[0] == right
        assert live.of("executor_lost") == []
        disk(writes=errno.EIO)  # and for good: one clear error after four attempts
        q = live.session.submit(QUERY.format(lines))
        with pytest.raises(brantlib.BrantError) as e:
            finish(q)
        assert e.value.code == "IO" and "Input/output error" in e.value.message and "cannot write" in e.value.message, e.value
        disk()
        few = f"select l_linenumber % 2, count(*) from {lines} where l_orderkey < 9999 group by all"
        assert sum(n for _, n in finish(live.session.submit(few))[0]) > 9000  # the session goes on
    assert_clean(box)


def test_disk_of_one_worker_that_hangs(box, disk, lines, right):
    """A worker that waits for its disk is silent: after 10 s it's lost, and what it had is made again elsewhere."""
    (box.dir / "shared").mkdir()
    with start(box, "flight") as live:
        q = live.session.submit(QUERY.format(lines))
        hold_first_reader(live, q)
        there = committed_files(box, "flight")
        home = next(part for part in there[max(there)].parts if part.startswith("brant-"))
        disk(ms=600_000, where=home)
        got, stats = finish(q)
        assert got == right
        assert stats.workers_lost >= 1 or stats.retries >= 1, "the fault cost nothing: it never fired"
        disk()
    assert_clean(box)


def test_cancel_while_the_disk_hangs(box, backend, disk, lines):
    """What waits for the disk is killed."""
    with start(box, backend) as live:
        q = live.session.submit(QUERY.format(lines))
        hold_first_reader(live, q)
        disk(ms=600_000)
        q.cancel()
        started = time.monotonic()
        with pytest.raises(brantlib.BrantError, match="cancelled"):
            q.table()
        assert time.monotonic() - started < SECOND_S
        q.free()
        wait_for(lambda: not paths.found(place(box, backend), "**/*.map") or backend == "flight", 3, "the query's files are gone")
    assert_clean(box)
