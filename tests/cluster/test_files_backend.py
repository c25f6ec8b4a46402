# SPDX-License-Identifier: Apache-2.0
"""shuffle_backend = files: rows between stages are files below one directory. What a worker committed outlives it, and nothing is left in
the directory whatever way a query ends."""
import contextlib
import os
import pathlib
import signal
import time

import brantlib
import compare
import duckdb
import paths
import pytest
import tpch
from harness import Live, assert_error, children, wait_for

SECOND = ("select k % 10 as k, count(*) as n, sum(s) as s from (select l_orderkey as k, sum(length(md5(l_comment))) as s from {} "
          "group by all) group by all order by all")
SLOW = "select count(*) as n from (select l_orderkey, sum(length(md5(md5(l_comment)))) as s from {} group by all)"


@pytest.fixture
def shared(box):
    """The directory that all nodes see."""
    d = box.dir / "shared"
    d.mkdir()
    return d


def files(shared, **more):
    return {"shuffle_backend": "files", "shuffle_dir": shared, **more}


def options(shared):
    return ["--set", "shuffle_backend=files", "--set", f"shuffle_dir={shared}"]


@pytest.fixture(scope="module")
def lines(big):
    return f"'{big}/lineitem/*.parquet'"


@pytest.fixture(scope="module")
def right(lines):
    con = duckdb.connect(config={"threads": 2})
    return [tuple(map(int, r)) for r in con.execute(SECOND.format(lines)).fetchall()]


@pytest.fixture(scope="module")
def few(small):
    return f"'{small}/lineitem/*.parquet'"


@pytest.fixture(scope="module")
def right_few(few):
    return [tuple(map(int, r)) for r in duckdb.connect().execute(SECOND.format(few)).fetchall()]


def numbers(tuples):
    return [tuple(int(v) for v in t) for t in tuples]


def finish(q):
    try:
        return numbers(compare.rows_of(q.table())), q.stats()
    finally:
        q.free()


def assert_empty(shared, seconds=5):
    end = time.monotonic() + seconds
    while paths.found(shared, "**/*") and time.monotonic() < end:
        time.sleep(0.02)
    assert not paths.found(shared, "**/*"), paths.found(shared, "**/*")[:10]


def committed_before(events, type):
    """{(stage, task)} of task_done before the first event of this type."""
    at = next(i for i, e in enumerate(events) if e["type"] == type)
    return {(e["stage"], e["task"]) for e in events[:at] if e["type"] == "task_done"}, events[at:]


def assert_not_run_again(events, type="worker_lost"):
    done, later = committed_before(events, type)
    again = {(e["stage"], e["task"]) for e in later if e["type"] == "task_assigned"} & done
    assert not again, f"committed tasks ran again: {sorted(again)}"
    return done


def test_tpch(box, shared):
    """All 22, as DuckDB answers them."""
    tpch.make_data("0.1")
    tpch.make_answers("0.1")
    wrong = {}
    with Live(box, workers=3, settings=files(shared)) as live:
        for v in tpch.views("0.1"):
            live.session.run(v)
        for nr, text in tpch.queries().items():
            table, stats = live.session.run(text)
            assert stats.distributed and stats.bytes_shuffled > 0 and stats.retries == 0
            want = compare.rows_of(tpch.answer("0.1", nr))
            difference = compare.difference(compare.rows_of(table), want, ordered="order by" in text.lower())
            if difference:
                wrong[nr] = difference
        assert not wrong, wrong
        assert_empty(shared)
    box.assert_clean()


def held_files(pid):
    """What its descriptors are; those that it closes meanwhile are none."""
    held = []
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            held.append(os.readlink(fd))
    return held


def test_outputs_are_in_the_directory_and_nowhere_else(box, shared, lines, right):
    with Live(box, workers=3, memory=512 << 20, settings=files(shared, two_step_aggregate="false")) as live:
        q = live.session.submit(SECOND.format(lines))
        done = live.wait("stage_done", stage=0)
        made = paths.found(shared, "brant-*-q*/s0/t*.a1.map")
        assert len(made) == done["tasks"] and not paths.found(shared, "**/*.part")
        assert sum(p.stat().st_size for p in made) >= done["bytes"]
        for w in (live.worker_pid(n) for n in (1, 2, 3)):
            held = held_files(w)
            assert not [h for h in held if "map-output" in h or h.endswith(".map")], held
        assert finish(q)[0] == right
        assert not paths.found(box.temp, "**/*.map")
    assert_empty(shared)
    box.assert_clean()


@pytest.mark.parametrize("when", ["first stage", "second stage"])
def test_worker_is_killed(box, shared, lines, right, when):
    """Its running tasks go elsewhere; what it had committed is read from the directory."""
    with Live(box, workers=3, memory=512 << 20, settings=files(shared, two_step_aggregate="false")) as live:
        q = live.session.submit(SECOND.format(lines))
        if when == "first stage":
            victim = live.wait("task_done", stage=0)["worker"]
        else:
            live.wait("stage_done", stage=0)
            victim = live.wait("task_started", stage=1)["worker"]
        os.kill(live.worker_pid(victim), signal.SIGKILL)
        got, stats = finish(q)
        assert got == right
        assert stats.workers_lost == 1
        done = assert_not_run_again(live.all)
        assert done and any(e["worker"] == victim and (e["stage"], e["task"]) in done for e in live.of("task_done"))
        assert_empty(shared)
    box.assert_clean()


def test_all_workers_die_after_the_result(box, shared, few, right_few):
    """A result that is committed needs nobody any more."""
    with Live(box, workers=2, memory=512 << 20, settings=files(shared)) as live:
        q = live.session.submit(SECOND.format(few))
        last = live.wait("query_started")["stages"] - 1
        live.wait("stage_done", stage=last)
        for w in children(os.getpid(), "brant-worker"):
            os.kill(w, signal.SIGKILL)
        live.wait("worker_lost")
        live.wait("worker_lost")
        got, stats = finish(q)
        assert got == right_few and stats.retries == 0
        assert_not_run_again(live.all)
        assert_empty(shared)
    box.assert_clean()


def test_every_end_leaves_nothing(box, shared, lines):
    with Live(box, workers=2, memory=512 << 20, settings=files(shared, two_step_aggregate="false")) as live:
        q = live.session.submit(f"select k, error('as asked') from (select l_orderkey as k, count(*) from {lines} group by all) where k > 5")
        with pytest.raises(brantlib.BrantError, match="as asked"):
            q.table()
        q.free()
        assert_empty(shared)
        q = live.session.submit(SLOW.format(lines))
        live.wait("task_done", stage=0, query=live.wait("query_started", stages=q.stats().stages)["query"])
        assert paths.found(shared, "**/*.map")
        q.cancel()
        with pytest.raises(brantlib.BrantError, match="cancelled"):
            q.table()
        q.free()
        assert_empty(shared)
        q = live.session.submit(SLOW.format(lines))  # closed in the middle
        live.wait("task_done", stage=0)
        q.free()
    assert_empty(shared)
    box.assert_clean()


def test_dead_coordinator_is_cleaned_up_by_the_next_session(box, shared, lines, right):
    c = box.sql(SECOND.format(lines), events=True, options=[*options(shared), "--set", "two_step_aggregate=false"])
    c.events.wait("stage_done", stage=0)
    c.signal(signal.SIGKILL)
    c.end()
    left = [p.name for p in shared.iterdir()]
    assert len(left) == 1 and paths.found(shared, "**/*.map"), left
    wait_for(lambda: not [x for x in box.left() if x.split()[0].isdigit()], 30, "the workers of a dead coordinator end")
    with Live(box, workers=2, memory=512 << 20, settings=files(shared)) as live:
        assert left[0] not in [p.name for p in shared.iterdir()]
        assert numbers(live.run(SECOND.format(lines))[0]) == right
    assert_empty(shared)
    box.assert_clean()


def test_sessions_in_one_directory(box, shared, few, right_few):
    """Their queries have directories of their own, and none takes another's for a dead one's."""
    lives, queries = [], []
    try:
        for _ in range(3):
            lives.append(Live(box, workers=1, memory=512 << 20, settings=files(shared)))
            queries.append(lives[-1].session.submit(SECOND.format(few)))
        for live in lives:
            live.wait("stage_done", stage=live.wait("query_started")["stages"] - 1)  # a result that nobody read keeps its directory
        assert len(list(shared.iterdir())) == 3
        assert [finish(q)[0] for q in queries] == [right_few] * 3
        assert all(live.of("task_failed") == [] for live in lives)
    finally:
        for live in lives:
            live.close()
    assert_empty(shared)
    box.assert_clean()


@pytest.mark.parametrize("dir", ["/proc", "{box}/missing", "{box}/file"])
def test_directory_that_cannot_be_written_is_refused(box, dir):
    (box.dir / "file").write_text("")
    dir = dir.format(box=box.dir)
    assert_error(box.sql("select 1", options=options(dir)).end(), "shuffle_dir", dir, "can't be written")


def test_backend_is_refused(box, shared):
    assert_error(box.sql("select 1", options=["--set", "shuffle_backend=ray"]).end(), "flight or files")
    assert_error(box.sql("select 1", options=["--set", "shuffle_backend=files"]).end(), "needs shuffle_dir")
    assert box.sql("reset shuffle_backend; select 1", options=options(shared)).end().code == 0
    assert_empty(shared)
