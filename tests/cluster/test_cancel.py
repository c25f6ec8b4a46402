# SPDX-License-Identifier: Apache-2.0
"""Cancel within a second: a call, a deadline, Ctrl-C, a client that is killed. Afterwards no worker runs a task or holds an output of the query,
whatever operator was busy, and the others go on."""
import signal
import time

import brantlib
import pytest
from harness import SECOND_S, Live, alive, cpu_seconds, children, free_port, rows, wait_for, worker_flights, worker_status

MIB = 1 << 20
SECRET = "cancel-test"
BUSY_CPU_S = 1.0  # of executors: more than reading the tables takes
LINES = "'{}/lineitem/*.parquet'"

# Each works for minutes, most of it inside one operator. The first two spend so long in one vector of rows, between two looks at DuckDB's
# interrupt flag, that their executors are taken away.
QUERIES = {
    "scan": f"select sum(length(sha256(repeat(l_comment, 2000)))) from {LINES}",
    "aggregate": f"select l_orderkey, count(*), max(length(sha256(repeat(l_comment, 2000)))) from {LINES} group by all",
    "hash join": f"select count(*) from {LINES} a join {LINES} b on a.l_linenumber = b.l_linenumber where a.l_comment > b.l_comment",
    "sort": f"select a.l_comment from {LINES} a, range(200) order by a.l_comment || range::varchar",
    "window": f"select count(*) from (select mode(l_comment) over (partition by l_linenumber order by l_orderkey rows between 40000 "
              f"preceding and current row) as m from {LINES}) where length(m) > 0",
    "inequality join": f"select count(*) from {LINES} a join {LINES} b on a.l_extendedprice < b.l_extendedprice and a.l_comment > b.l_comment",
    "cross join": f"select count(*) from {LINES} a, {LINES} b where length(a.l_comment) + length(b.l_comment) = -1",
    "cross join of ranges": "select count(*) from range(10000000) a, range(10000000) b where a.range + b.range = -1",
}


def uris(events):
    """Where the members are."""
    gone = {e["worker"] for e in events.of("worker_lost")}
    return [e["uri"] for e in events.of("worker_joined") if e["worker"] not in gone]


def cpu(live):
    """CPU seconds that executors have taken, those that are gone aside."""
    return sum(cpu_seconds(e) for e in live.of("worker_joined") for e in children(e["pid"], "brant-executor"))


def idle(events):
    """No worker has a task, an output, or memory for one."""
    for uri in uris(events):
        s = worker_status(uri, SECRET)
        if s["tasks_running"] or s["tasks_waiting"] or s["outputs"] or s["store_memory_bytes"] or s["store_disk_bytes"]:
            return False
        if worker_flights(uri, SECRET):
            return False
    return True


def idle_within(events, since):
    wait_for(lambda: idle(events), 15, "all tasks are stopped and all outputs dropped")
    took = time.monotonic() - since
    assert took < SECOND_S, f"{took:.2f} s"


def refused(q):
    with pytest.raises(brantlib.BrantError) as e:
        q.table()
    q.free()
    return e.value.code


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """One cluster for all operators: each must leave it as it was."""
    import harness
    box = harness.Box(tmp_path_factory.mktemp("cancel"))
    with Live(box, workers=2, memory=384 * MIB, secret=SECRET, settings={"broadcast_bytes": 0, "split_bytes": "1MB"}) as live:
        live.run("select 1")
        yield live
    box.assert_clean()
    box.close()


@pytest.mark.parametrize("name", QUERIES)
def test_operators(session, small, name):
    live = session
    n = len(live.all)
    q = live.session.submit(QUERIES[name].format(small, small))
    live.wait("task_started")
    busy = cpu(live) + BUSY_CPU_S
    wait_for(lambda: cpu(live) > busy, 60, "it works, in what takes long")
    q.cancel()
    since = time.monotonic()
    assert refused(q) == "CANCELLED"
    assert time.monotonic() - since < SECOND_S
    idle_within(live, since)
    live.wait("query_failed", seconds=5)
    assert not [e for e in live.all[n:] if e["type"] == "worker_lost"]
    assert live.run("select count(*) from range(10)")[0] == [(10,)]
    live.wait("query_done")


def test_outputs_of_finished_stages_go(session, small):
    """In the middle of a later stage, with outputs of the first in all stores."""
    live = session
    q = live.session.submit(f"select count(*) from (select l_orderkey, l_comment, l_linenumber, max(l_shipdate) as d from {LINES.format(small)} "
                            "group by all) where length(sha256(repeat(l_comment || d::varchar, 3000))) > 0")
    live.wait("stage_done", stage=0)
    live.wait("task_started", stage=1)
    assert any(worker_status(u, SECRET)["outputs"] for u in uris(live))
    q.cancel()
    since = time.monotonic()
    assert refused(q) == "CANCELLED"
    idle_within(live, since)
    live.wait("query_failed", seconds=5)


def test_deadline(session, small):
    live = session
    live.session.set("timeout_ms", 700)
    try:
        q = live.session.submit(QUERIES["cross join"].format(small, small))
        assert refused(q) == "TIMEOUT"
        since = time.monotonic()
        idle_within(live, since)
        assert live.wait("query_failed", seconds=5)["code"] == "TIMEOUT"
    finally:
        live.session.set("timeout_ms", 0)


def test_others_go_on(session, small):
    """A query beside the cancelled one, in the same executors, gives all its rows."""
    live = session
    bad = live.session.submit(QUERIES["cross join"].format(small, small))
    live.wait("task_started")
    good = live.session.submit(f"select count(*) as n from {LINES.format(small)} where length(md5(repeat(l_comment, 20))) > 0")
    bad.cancel()
    assert refused(bad) == "CANCELLED"
    assert good.table().column("n").to_pylist() == [600572]
    good.free()
    wait_for(lambda: idle(live), 5, "nothing is left")


# ---- the client


@pytest.fixture
def by_hand(box, small):
    """(brant sql in the middle of a query, its two workers, which outlive it)."""
    join = f"127.0.0.1:{free_port()}"
    workers = [box.worker(join, secret=SECRET) for _ in range(2)]

    def run(text, *options):
        return box.sql(text.format(small, small), workers=0, options=["--external-workers", 2, "--listen", join, "--set",
                                                                       "broadcast_bytes=0", *options], env={"BRANT_SECRET": SECRET}, events=True)

    yield run, workers
    box.assert_clean()


@pytest.mark.parametrize("name", ["scan", "cross join"])
def test_interrupt(by_hand, name):
    """Ctrl-C: the client ends, and workers that others started with it, since its session is over: with nothing left."""
    run, workers = by_hand
    c = run(QUERIES[name])
    c.events.wait("task_started")
    c.signal(signal.SIGINT)
    since = time.monotonic()
    assert c.end(10).code == 130, c.text()
    for w in workers:
        assert w.end(10).code == 0, w.text()
    took = time.monotonic() - since
    assert took < SECOND_S, f"{took:.2f} s"


@pytest.mark.parametrize("name", ["scan", "cross join"])
def test_client_is_killed(box, by_hand, name, small):
    """kill -9: executors and files are gone within a second; the workers serve the next client."""
    run, workers = by_hand
    c = run(QUERIES[name])
    c.events.wait("task_started")
    executors = [e for w in workers for e in children(w.pid, "brant-executor")]
    assert len(executors) == 2 and len(box.homes()) == 2
    c.signal(signal.SIGKILL)
    since = time.monotonic()
    wait_for(lambda: not any(map(alive, executors)) and not box.homes(), 15, "executors and files are gone")
    took = time.monotonic() - since
    assert took < SECOND_S, f"{took:.2f} s"
    c.end(5)
    c = run("select count(*) from " + LINES).end()
    assert c.code == 0 and rows(c.out) == [("600572",)], c.text()
    for w in workers:
        assert w.end(10).code == 0, w.text()


def test_timeout_of_the_command(box, by_hand):
    run, workers = by_hand
    c = run(QUERIES["cross join"], "--timeout", "1s").end(30)
    assert c.code == 1 and "timeout" in c.text(), (c.code, c.text())
    assert c.events.of("query_failed")[0]["code"] == "TIMEOUT"
    for w in workers:
        assert w.end(10).code == 0, w.text()
