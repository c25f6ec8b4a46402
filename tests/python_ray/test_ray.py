# SPDX-License-Identifier: Apache-2.0
"""brant.init("ray") on real Ray: TPC-H, functions in Python, and faults in the middle of queries: right answers, what died is there again, nothing
is left over. Faults are placed by events, and a file that a function of the query waits for keeps that query from ending before."""
import collections
import json
import os
import signal
import subprocess
import sys
import threading

import brant
import compare
import harness
import pytest
import tpch
from brant import col
from nodes import of_brant

SCALE = "0.1"
GATE_S = 60


class Watch:
    """A session's events, in order, with marks of the test between them."""

    def __init__(self, session):
        self.all = []
        session.subscribe(lambda text: self.all.append(json.loads(text)))

    def of(self, type, since=0, **fields):
        return [e for e in self.all[since:] if e["type"] == type and all(e.get(k) == v for k, v in fields.items())]

    def wait(self, type, since=0, seconds=30, **fields):
        return harness.wait_for(lambda: self.of(type, since, **fields), seconds, f"event {type} {fields}")[0]

    def mark(self, what):
        self.all.append({"type": what})
        return len(self.all)


class Running:
    """A frame that is read in a thread."""

    def __init__(self, read):
        self._result = collections.deque()
        self._thread = threading.Thread(target=self._run, args=(read,), daemon=True)
        self._thread.start()

    def _run(self, read):
        try:
            self._result.append((read(), None))
        except BaseException as e:
            self._result.append((None, e))

    def end(self, seconds=60):
        self._thread.join(seconds)
        assert self._result, f"the query has not ended within {seconds} s"
        value, error = self._result[0]
        if error:
            raise error
        return value


def joined(session):
    return [w for w in session.workers() if w["joined"]]


def wait_joined(session, count, seconds=60):
    harness.wait_for(lambda: len(joined(session)) == count, seconds, f"{count} workers; now: {session.workers()}")
    return joined(session)


def check(session, numbers):
    for n in numbers:
        text = tpch.queries()[n]
        got, want = session.execute(text).arrow(), tpch.answer(SCALE, n)
        assert compare.difference(compare.rows_of(got), compare.rows_of(want), ordered="order by" in text.lower()) is None, f"query {n}"


def views(session):
    tpch.make_data(SCALE)
    tpch.make_answers(SCALE)
    for v in tpch.views(SCALE):
        session.execute(v)


def gated(session, gate):
    """Orders of each priority, by way of a shuffle, a function that waits for the file `gate`, and a second shuffle: [(priority, orders, keys)]."""

    @brant.func(return_dtype=int, batch_size=2048, timeout=GATE_S)
    def through(key, gate, seconds):
        import os
        import time
        end = time.monotonic() + seconds
        while not os.path.exists(gate):
            if time.monotonic() > end:
                raise TimeoutError("the gate stays shut")
            time.sleep(0.02)
        return key

    per_order = (brant.sql("SELECT l_orderkey AS k, count(*) AS lines FROM lineitem GROUP BY l_orderkey", session=session)
                 .join(brant.sql("SELECT o_orderkey AS k, o_orderpriority AS p FROM orders", session=session), on="k"))
    return (per_order.select("p", "lines", key=through(col("k"), str(gate), GATE_S / 2))
            .group_by("p").agg(n=brant.functions.count(), lines=col("lines").sum().cast("BIGINT"), keys=col("key").sum().cast("BIGINT")).sort("p"))


def expected():
    import duckdb
    con = duckdb.connect()
    for v in tpch.views(SCALE):
        con.execute(v)
    return con.execute("""SELECT p, count(*), sum(lines)::BIGINT, sum(k)::BIGINT FROM (SELECT l_orderkey AS k, count(*) AS lines FROM lineitem
        GROUP BY l_orderkey) JOIN (SELECT o_orderkey AS k, o_orderpriority AS p FROM orders) USING (k) GROUP BY p ORDER BY p""").fetchall()


def rows(frame):
    return compare.rows_of(frame.to_arrow())


def start_gated(session, watch, gate):
    """Runs, with committed outputs on every worker and a function that waits. Returns it and its number."""
    frame = gated(session, gate)
    frame.schema  # a query of its own
    watch.mark("gated")
    since = len(watch.all)
    running = Running(lambda: rows(frame))
    query = watch.wait("task_assigned", since=since)["query"]
    harness.wait_for(lambda: len({e["worker"] for e in watch.of("task_done", query=query)}) >= 3, 40, "committed outputs on all workers")
    harness.wait_for(lambda: [n for n in of_brant().values() if n.startswith("python")], 40, "a process of the function")
    assert not watch.of("query_done", query=query)
    return running, query


def check_lost_in_query(watch, query, number, killed):
    """The worker was lost after the kill, in the middle of the query, and what it had was made again."""
    lost = watch.wait("worker_lost", since=killed, worker=number)
    done = watch.wait("query_done", query=query)
    started = watch.of("query_started", query=query)[0]
    assert watch.all.index(started) < killed <= watch.all.index(lost) < watch.all.index(done)
    again = [e for e in watch.of("task_assigned", since=killed, query=query) if e["why"] in ("worker_lost", "output_lost")]
    assert again, "no task ran again, though the worker had outputs of the query"


# ---- no faults


def test_tpch(ray_session):
    views(ray_session)
    watch = Watch(ray_session)
    workers = wait_joined(ray_session, 3)
    assert len({w["node"] for w in workers}) == 3 and {w["threads"] for w in workers} == {1}
    assert {w["memory"] for w in workers} == {int((1 << 30) * 0.8)}
    check(ray_session, range(1, 23))
    assert len({e["worker"] for e in watch.of("task_done")}) == 3  # all of them worked


def test_functions(ray_session):
    """They run in the interpreter of the actor, as children of the workers, one row function and one class that keeps its state."""
    views(ray_session)

    @brant.func(return_dtype=str)
    def where(k):
        import os
        import sys
        return f"{sys.executable} {os.getppid()}"

    @brant.cls(concurrency=3)
    class Counter:
        def __init__(self, add):
            self.add, self.batches = add, 0

        @brant.method(return_dtype=int, batch=True, batch_size=512)
        def plus(self, keys: list):
            self.batches += 1
            assert self.batches > 0
            return [k + self.add for k in keys]

    orders = brant.sql("SELECT o_orderkey AS k FROM orders", session=ray_session)
    seen = rows(orders.select(w=where(col("k"))).group_by("w").agg(n=brant.functions.count()))
    assert sum(n for _, n in seen) == 150000
    assert {w.split()[0] for w, _ in seen} == {sys.executable}
    assert {int(w.split()[1]) for w, _ in seen} <= {w["pid"] for w in joined(ray_session)}
    total = rows(orders.select(k=Counter(7).plus(col("k"))).agg(total=col("k").sum().cast("BIGINT")))
    assert total == [(rows(orders.agg(total=col("k").sum().cast("BIGINT")))[0][0] + 7 * 150000,)]


def test_no_secret_on_command_lines(ray_session):
    secret = ray_session._cluster._config["secret"]
    for pid in harness.marked(os.environ["BRANT_TEST_MARK"]):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                assert secret.encode() not in f.read()
        except OSError:
            pass


# ---- faults


def test_actor_killed(ray_session, tmp_path):
    """Ray restarts the actor, which starts a worker; the query makes again what was lost."""
    import ray
    views(ray_session)
    watch, gate = Watch(ray_session), tmp_path / "gate"
    victim = wait_joined(ray_session, 3)[0]
    number = ray_session._cluster.number_of(victim["host"], victim["pid"])
    running, query = start_gated(ray_session, watch, gate)
    killed = watch.mark("killed")
    ray.kill(ray_session._cluster._places[victim["node"]][0].actor, no_restart=False)
    watch.wait("worker_lost", since=killed, worker=number)
    fresh = watch.wait("worker_joined", since=killed)
    gate.touch()
    assert running.end() == expected()
    check_lost_in_query(watch, query, number, killed)
    again = next(w for w in wait_joined(ray_session, 3) if w["node"] == victim["node"])
    assert again["restarted"] and again["actor"] != victim["actor"] and again["pid"] == fresh["pid"] != victim["pid"]
    harness.wait_for(lambda: not harness.alive(victim["pid"]), 10, "the old worker to end with its actor")
    check(ray_session, [5])


def test_worker_killed(ray_session, tmp_path):
    """The actor lives on and starts another worker."""
    views(ray_session)
    watch, gate = Watch(ray_session), tmp_path / "gate"
    victim = wait_joined(ray_session, 3)[1]
    number = ray_session._cluster.number_of(victim["host"], victim["pid"])
    running, query = start_gated(ray_session, watch, gate)
    killed = watch.mark("killed")
    os.kill(victim["pid"], signal.SIGKILL)
    watch.wait("worker_lost", since=killed, worker=number)
    watch.wait("worker_joined", since=killed)
    gate.touch()
    assert running.end() == expected()
    check_lost_in_query(watch, query, number, killed)
    again = next(w for w in wait_joined(ray_session, 3) if w["node"] == victim["node"])
    assert not again["restarted"] and again["actor"] == victim["actor"] and again["starts"] == 2 and again["pid"] != victim["pid"]


def test_raylet_killed(ray_session, nodes, tmp_path):
    """A node is gone for good: the query ends on the others. A node that comes later gets a worker, and gets work."""
    views(ray_session)
    watch, gate = Watch(ray_session), tmp_path / "gate"
    victim = next(w for w in wait_joined(ray_session, 3) if w["node"] in nodes.others())
    number = ray_session._cluster.number_of(victim["host"], victim["pid"])
    running, query = start_gated(ray_session, watch, gate)
    killed = watch.mark("killed")
    node = nodes.kill(victim["node"])
    watch.wait("worker_lost", since=killed, worker=number)
    gate.touch()
    assert running.end() == expected()
    check_lost_in_query(watch, query, number, killed)
    nodes.forget(node)
    harness.wait_for(lambda: victim["node"] not in {w["node"] for w in ray_session.workers()}, 60, "the session to see that the node is gone")
    assert not harness.alive(victim["pid"]) and not harness.alive(victim["actor"])
    added = nodes.add()
    fresh = next(w for w in wait_joined(ray_session, 3) if w["node"] == added.node_id)
    since = watch.mark("three again")
    check(ray_session, [1, 9, 18])
    assert watch.of("task_done", since=since, worker=ray_session._cluster.number_of(fresh["host"], fresh["pid"]))


def test_caller_killed(nodes, tmp_path):
    """The process that called init is killed: its workers end, and Ray ends the actors."""
    nodes.complete()
    p = subprocess.Popen([sys.executable, "-c", CALLER, nodes.address], stdout=subprocess.PIPE, text=True)
    try:
        assert p.stdout.readline().strip() == "3 workers"
        assert len([n for n in of_brant().values() if n == "brant-worker"]) == 3
    finally:
        p.kill()
        p.wait()
        p.stdout.close()
    nodes.wait_clean()


CALLER = """
import sys, brant
s = brant.init("ray", address=sys.argv[1], distribute="always", ray_options={"log_to_driver": False})
print(len([w for w in s.workers() if w["joined"]]), "workers", flush=True)
sys.stdin.read() if len(sys.argv) > 2 else __import__("signal").pause()
"""


# ---- what can't be


def test_a_node_without_brant(nodes):
    """Its name and what to do are in the error, and nothing is left of the others."""
    nodes.complete()
    bad = nodes.add(env_vars={"PYTHONPATH": "", "BRANT_LIB_DIR": ""})
    try:
        with pytest.raises(brant.Error, match=r"node [0-9.]+ \(" + bad.node_id[:8] + r"\): the package brant is missing \(for .*install the same"):
            brant.init("ray", address=nodes.address)
        nodes.wait_clean()
    finally:
        nodes.forget(bad)


def test_too_much_is_asked_for(nodes):
    nodes.complete()
    with pytest.raises(brant.Error, match="no node of this Ray cluster can have a worker: node .*want 2 CPUs, it has 1"):
        brant.init("ray", address=nodes.address, threads=2)
    with pytest.raises(brant.Error, match="bytes of memory"):
        brant.init("ray", address=nodes.address, memory=4 << 30)
    with pytest.raises(brant.errors.InvalidError, match="takes no workers"):
        brant.init("ray", address=nodes.address, workers=3)
    with pytest.raises(brant.errors.InvalidError, match="Ray client"):
        brant.init("ray", address="ray://localhost:10001")
    nodes.wait_clean()


# ---- Ray that init starts


OWN = """
import brant
s = brant.init("ray", address="local", workers_per_node=2, threads=1, memory=256 << 20, distribute="always",
               ray_options={"num_cpus": 2, "object_store_memory": 80 << 20, "_memory": 1 << 30, "_temp_dir": %r, "log_to_driver": False})
print(sorted((w["threads"], w["memory"] >> 20, w["joined"]) for w in s.workers()))
print(brant.range(100000).agg(n=brant.functions.count()).to_pydict())
"""


def test_own_ray(temp):
    """init starts Ray; the end of the process ends the workers and Ray."""
    before = set(harness.marked(os.environ["BRANT_TEST_MARK"]))
    done = subprocess.run([sys.executable, "-c", OWN % str(temp / "own")], capture_output=True, text=True, timeout=80)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[(1, 256, True), (1, 256, True)]", "{'n': [100000]}"]
    harness.wait_for(lambda: not set(harness.marked(os.environ["BRANT_TEST_MARK"])) - before, 20, "Ray and the workers to end")
