# SPDX-License-Identifier: Apache-2.0
"""Workers come and go while queries run: drained, joining late, stopped, restarted; coordinators and executors that die.

What a fault costs is read from the event stream: which tasks were assigned again, and where. Faults follow events, never a clock.
"""
import contextlib
import os
import pathlib
import signal

import brantlib
import compare
import duckdb
import pytest
from harness import Live, after, alive, before, children, free_port, rows, task_of, wait_for, worker_flights, worker_status
from test_memory import Cgroup

SECRET = "workers-test"
MIB = 1 << 20
# Few rows, but much to do for each, before and after all of them were exchanged: tasks of a tenth of a second.
QUERY = ("select k % 10 as k, sum(n)::bigint as n, sum(s)::bigint as s, sum(length(md5(repeat(m, 40))))::bigint as t from (select l_orderkey "
         "as k, count(*) as n, max(l_comment) as m, sum(length(md5(repeat(l_comment, 10)))) as s from '{}/lineitem/*.parquet' group by all) "
         "group by all order by all")
SETTINGS = {"two_step_aggregate": "false", "split_bytes": "1MB", "partitions": 8, "worker_silent_ms": 3000}
FIRST, SECOND = 0, 1  # its stages


@pytest.fixture(scope="module")
def right(small):
    con = duckdb.connect(config={"threads": 2})
    return [tuple(int(v) for v in r) for r in con.execute(QUERY.format(small)).fetchall()]


@contextlib.contextmanager
def cluster(box, n, *options, mode="staged", **kw):
    """A session in this process and n workers started by hand, all joined: (live, workers, where to join)."""
    join = f"127.0.0.1:{free_port()}"
    workers = [box.worker(join, *options, secret=SECRET) for _ in range(n)]
    with Live(box, workers=0, external_workers=n, listen_port=int(join.rsplit(":", 1)[1]), secret=SECRET, settings=SETTINGS, mode=mode,
              **kw) as live:
        live.run("select 1")
        live.wait("query_done")  # what is waited for from here on is of the test's own query
        yield live, workers, join


def numbers(table):
    return [tuple(int(v) for v in t) for t in compare.rows_of(table)]


def finish(q):
    """Its rows; the query is freed."""
    try:
        return numbers(q.table())
    finally:
        q.free()


def process(live, workers, worker):
    """The process of a member."""
    return next(w for w in workers if w.pid == live.worker_pid(worker))


def uri(live, worker):
    return next(e["uri"] for e in live.of("worker_joined") if e["worker"] == worker)


def twice(events):
    """Tasks that were assigned more than once, second attempts for stragglers aside."""
    seen, again = set(), set()
    for e in events:
        if e["type"] == "task_assigned" and not e.get("second"):
            (again if task_of(e) in seen else seen).add(task_of(e))
    return again


# ---- leaving


@pytest.mark.parametrize("mode, stage", [("staged", FIRST), ("staged", SECOND), ("eager", FIRST)])
def test_drain(box, small, right, mode, stage):
    """SIGTERM: no new task, what runs ends, its outputs are read to the end; nothing is done twice."""
    with cluster(box, 2, mode=mode) as (live, workers, _):
        q = live.session.submit(QUERY.format(small))
        victim = live.wait("task_started", stage=stage)["worker"]
        process(live, workers, victim).signal(signal.SIGTERM)
        told = live.wait("worker_draining", worker=victim)
        assert finish(q) == right
        live.wait("worker_released", seconds=10, worker=victim)
        w = process(live, workers, victim).end(10)
        assert w.code == 0, w.text()
        assert [e for e in after(live.all, told) if e["type"] == "task_assigned"], "the other one had work left"
        assert not [e for e in after(live.all, told) if e["type"] == "task_assigned" and e["worker"] == victim]
        assert not live.of("task_failed") and not twice(live.all)
        running = {task_of(e) for e in before(live.all, told) if e["type"] == "task_assigned" and e["worker"] == victim}
        assert running and running <= {task_of(e) for e in live.of("task_done") if e["worker"] == victim}
        assert finish(live.session.submit(QUERY.format(small))) == right
    box.assert_clean()


def test_drain_of_an_idle_worker(box):
    with cluster(box, 2) as (live, workers, _):
        workers[0].signal(signal.SIGTERM)
        assert workers[0].end(5).code == 0, workers[0].text()
        assert live.of("worker_released")
        assert live.run("select 42 as a")[0] == [(42,)]
    box.assert_clean()


def test_drain_of_the_last_worker(box, small, right):
    """Its outputs stay until the one that comes after it has read them."""
    with cluster(box, 1) as (live, workers, join):
        q = live.session.submit(QUERY.format(small))
        live.wait("stage_done", stage=FIRST)
        live.wait("task_started", stage=SECOND)
        workers[0].signal(signal.SIGTERM)
        told = live.wait("worker_draining")
        new = box.worker(join, secret=SECRET)
        assert finish(q) == right
        assert workers[0].end(10).code == 0, workers[0].text()
        assert {e["worker"] for e in after(live.all, told) if e["type"] == "task_assigned"} == {2}
        assert not twice(live.all) and not live.of("task_failed")
        assert alive(new.pid)
    box.assert_clean()


def test_drain_takes_too_long(box, small, right):
    """After --drain seconds it leaves, whatever runs or is needed: that is made again."""
    with cluster(box, 2, "--drain", 1) as (live, workers, _):
        q = live.session.submit("select count(*) from range(100000000000) t(i) where hash(i) = 3")
        victim = live.wait("task_started")["worker"]
        process(live, workers, victim).signal(signal.SIGTERM)
        live.wait("worker_draining", worker=victim)
        live.wait("worker_lost", seconds=10, worker=victim)
        assert process(live, workers, victim).end(5).code == 0
        live.wait("task_started", worker=3 - victim)  # the other one does it now
        q.cancel()
        with pytest.raises(brantlib.BrantError, match="cancelled"):
            finish(q)
        assert finish(live.session.submit(QUERY.format(small))) == right
    box.assert_clean()


def test_second_signal(box, small, right):
    with cluster(box, 2) as (live, workers, _):
        q = live.session.submit(QUERY.format(small))
        victim = live.wait("task_started", stage=SECOND)["worker"]
        w = process(live, workers, victim)
        w.signal(signal.SIGTERM)
        live.wait("worker_draining", worker=victim)
        w.signal(signal.SIGTERM)
        live.wait("worker_lost", seconds=5, worker=victim)
        assert w.end(5).code == 0, w.text()
        assert finish(q) == right
    box.assert_clean()


def test_drain_of_a_local_worker(box, small, right):
    """Also one that a session started itself: it is drained, and replaced."""
    with Live(box, workers=2, memory=256 * MIB, mode="staged", settings=SETTINGS) as live:
        q = live.session.submit(QUERY.format(small))
        victim = live.wait("task_started")["worker"]
        pid = live.worker_pid(victim)
        os.kill(pid, signal.SIGTERM)
        live.wait("worker_draining", worker=victim)
        assert finish(q) == right
        live.wait("worker_joined", worker=3, seconds=20)
        assert not alive(pid) and not live.of("task_failed") and not twice(live.all)
    box.assert_clean()


# ---- joining


@pytest.mark.parametrize("mode", ["staged", "eager"])
def test_join_while_a_query_runs(box, small, right, mode):
    """The new one gets tasks at once, also of a later stage: it knows where the outputs are that were made before it came."""
    with cluster(box, 1, mode=mode) as (live, _, join):
        q = live.session.submit(QUERY.format(small))
        live.wait("task_done", stage=FIRST)
        new = box.worker(join, secret=SECRET)
        joined = live.wait("worker_joined", pid=new.pid)
        first = live.wait("task_assigned", worker=2)
        assert not [e for e in before(live.all, first) if e["type"] == "query_done" and e["query"] == first["query"]]
        assert finish(q) == right
        done = [e for e in live.of("task_done") if e["worker"] == 2]
        assert any(e["stage"] == SECOND for e in done), done
        assert [e for e in before(live.all, joined) if e["type"] == "task_done" and e["worker"] == 1 and e["stage"] == FIRST]
        assert not twice(live.all) and not live.of("task_failed")
    box.assert_clean()


def test_join_between_stages(box, small, right):
    with cluster(box, 1) as (live, _, join):
        q = live.session.submit(QUERY.format(small))
        live.wait("stage_done", stage=FIRST)
        box.worker(join, secret=SECRET)
        live.wait("task_done", worker=2, stage=SECOND)  # from outputs of the other one
        assert finish(q) == right
        assert not twice(live.all)
    box.assert_clean()


# ---- hanging


def test_worker_that_hangs_comes_back(box, small, right):
    """SIGSTOP: lost after worker_silent_ms. When it wakes up, what it says is of a member that isn't any more; it wipes all and joins again."""
    with cluster(box, 3) as (live, workers, _):
        q = live.session.submit(QUERY.format(small))
        victim = live.wait("task_done", stage=FIRST)["worker"]
        w = process(live, workers, victim)
        executor, home = children(w.pid, "brant-executor")[0], box.homes()[w.pid]
        w.signal(signal.SIGSTOP)
        lost = live.wait("worker_lost", worker=victim)
        assert finish(q) == right
        committed = {(task_of(e), e["attempt"]) for e in live.of("task_done")}
        w.signal(signal.SIGCONT)
        again = live.wait("worker_joined", seconds=20, pid=w.pid)
        assert again["worker"] > 3
        wait_for(lambda: not alive(executor), 5, "the executor of its first life is gone")
        assert not home.exists() and set(box.homes()) == {x.pid for x in workers}
        assert {(task_of(e), e["attempt"]) for e in live.of("task_done")} == committed, "late answers count for nothing"
        assert not [e for e in after(live.all, lost) if e.get("worker") == victim and e["type"].startswith("task_")
                    and e["type"] != "task_cancelled"]
        assert worker_flights(again["uri"], SECRET) == []
        assert finish(live.session.submit(QUERY.format(small))) == right
        assert again["worker"] in {e["worker"] for e in live.of("task_done")}
    assert [x.end(10).code for x in workers] == [0, 0, 0]
    box.assert_clean()


# ---- restarting


def test_restarted_worker_cleans_up(box, small, right):
    """kill -9 of one of two that share a directory: the one started next removes what is the dead one's, and nothing else."""
    with cluster(box, 2) as (live, workers, join):
        q = live.session.submit(QUERY.format(small))
        victim = live.wait("task_done", stage=FIRST)["worker"]
        dead, other = process(live, workers, victim), process(live, workers, 3 - victim)
        homes = box.homes()
        dead.signal(signal.SIGKILL)
        live.wait("worker_lost", worker=victim)
        assert homes[dead.pid].exists()
        new = box.worker(join, secret=SECRET)
        live.wait("worker_joined", pid=new.pid)
        assert not homes[dead.pid].exists() and homes[other.pid].exists()
        assert finish(q) == right
        assert set(box.homes()) == {other.pid, new.pid}
    dead.end(5)
    box.assert_clean()


# ---- the coordinator


def wiped(workers, executors, homes):
    return not any(alive(e) for e in executors) and not any(h.exists() for h in homes)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_coordinator_goes_and_comes(box, small, right, how):
    """Workers stop their tasks and remove their files within 30 s; then they serve the coordinator that comes at the same place, or the
    same one when it goes on."""
    join = f"127.0.0.1:{free_port()}"
    workers = [box.worker(join, secret=SECRET) for _ in range(2)]

    def coordinator():
        options = [x for k, v in SETTINGS.items() for x in ("--set", f"{k}={v}")]
        return box.sql(QUERY.format(small), workers=0, options=["--external-workers", 2, "--listen", join, *options],
                       env={"BRANT_SECRET": SECRET}, events=True)

    c = coordinator()
    c.events.wait("task_started", stage=SECOND)
    executors = [e for w in workers for e in children(w.pid, "brant-executor")]
    homes = list(box.homes().values())
    assert len(executors) == len(homes) == 2
    c.signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    wait_for(lambda: wiped(workers, executors, homes), 5 if how == "killed" else 30, "tasks are stopped and files removed")
    if how == "killed":
        c.end(5)
        assert not list(box.temp.iterdir())
        c = coordinator()
    else:
        c.signal(signal.SIGCONT)
    c.end()
    assert c.code == 0 and [tuple(int(v) for v in r) for r in rows(c.out)] == right, c.text()
    for w in workers:
        assert w.end(10).code == 0, w.text()
        assert "joins again" in w.text()
    box.assert_clean()


def test_coordinator_does_not_come_back(box):
    with cluster(box, 1, "--rejoin-wait", 1) as (live, workers, _):
        pass
    assert workers[0].end(10).code == 0  # asked to: a session that closes says goodbye
    join = f"127.0.0.1:{free_port()}"
    w = box.worker(join, "--rejoin-wait", 1, secret=SECRET)
    c = box.sql("select count(*) from range(100000000000) t(i) where hash(i) = 3", workers=0,
                options=["--external-workers", 1, "--listen", join], env={"BRANT_SECRET": SECRET}, events=True)
    c.events.wait("task_started")
    c.signal(signal.SIGKILL)
    c.end(5)
    assert w.end(10).code == 3 and "no coordinator at" in w.text(), w.text()
    box.assert_clean()


def uptime():
    """Seconds on the clock that workers count silence by."""
    return float(pathlib.Path("/proc/uptime").read_text().split()[0])


def test_caller_is_stopped_for_a_while(box, small, right):
    """Ctrl-Z for longer than any silence that is allowed: its own workers wait for it, and it does not blame them when it goes on."""
    options = [x for k, v in SETTINGS.items() for x in ("--set", f"{k}={v}")]
    c = box.sql(QUERY.format(small), workers=2, options=options, events=True)
    c.events.wait("task_done", stage=FIRST)
    workers = c.worker_pids()
    c.signal(signal.SIGSTOP)
    start = uptime()
    status = [pathlib.Path(f"/proc/{p}/stat") for p in workers]
    wait_for(lambda: uptime() > start + 5, 30, "longer than worker_silent_ms has passed")
    assert all(s.exists() for s in status) and c.worker_pids() == workers
    c.signal(signal.SIGCONT)
    c.end()
    assert c.code == 0 and [tuple(int(v) for v in r) for r in rows(c.out)] == right, c.text()
    assert not c.events.of("worker_lost") and not twice(c.events.all)
    box.assert_clean()


# ---- executors


def lost_tasks(live, executor):
    """Runs until the executor is known to be dead; (event, the attempts that were under way on its worker)."""
    lost = live.wait("executor_lost", pid=executor)
    seen = before(live.all, lost)
    ended = {(task_of(e), e["attempt"]) for e in seen if e["type"] in ("task_done", "task_failed", "task_cancelled")}
    return lost, {task_of(e) for e in seen if e["type"] == "task_assigned" and e["worker"] == lost["worker"]
                  and (task_of(e), e["attempt"]) not in ended}


@pytest.mark.parametrize("mode, number", [("staged", signal.SIGSEGV), ("staged", signal.SIGABRT), ("eager", signal.SIGSEGV),
                                          ("eager", signal.SIGKILL)])
def test_executor_crashes(box, small, right, mode, number):
    """It costs what ran in it: the outputs of its node stay, and no task that had committed runs again. (Eager: readers that followed what
    ran in it begin anew.)"""
    with cluster(box, 2, mode=mode) as (live, _, _):
        q = live.session.submit(QUERY.format(small))
        victim = live.wait("task_started", stage=SECOND)["worker"]
        executor = live.executor_pid(victim)
        os.kill(executor, number)
        lost, running = lost_tasks(live, executor)
        assert finish(q) == right
        assert number.name in lost["message"] and lost["tasks"] == len(running), (lost, running)
        if mode == "staged":
            assert twice(live.all) == running, "only what ran in it ran again"
        assert not twice(live.all) & {task_of(e) for e in before(live.all, lost) if e["type"] == "task_done"}
        assert not live.of("worker_lost") and len(live.of("executor_lost")) == 1
        assert not live.of("outputs_lost")
    box.assert_clean()


def test_executor_is_killed_for_its_memory(box, small, right):
    """The kernel's own OOM killer, in a cgroup: as any other death of an executor."""
    g = Cgroup(f"brant-test-{box.mark[:12]}", 1 << 40)
    try:
        with cluster(box, 2, memory=256 << 20) as (live, _, _):
            q = live.session.submit(QUERY.format(small))
            victim = live.wait("task_started", stage=FIRST)["worker"]  # of the first tasks: later ones have the memory of those before them
            executor = live.executor_pid(victim)
            (g.dir / "cgroup.procs").write_text(str(executor))
            (g.dir / ("memory.limit_in_bytes" if g.is_v1 else "memory.max")).write_text(str(8 * MIB))  # what it takes from now on
            lost, running = lost_tasks(live, executor)
            assert finish(q) == right
            assert g.oom_kills() >= 1
            assert "SIGKILL" in lost["message"] and "memory" in lost["message"], lost
            assert twice(live.all) == running and not live.of("worker_lost")
        box.assert_clean()
    finally:
        g.remove()
