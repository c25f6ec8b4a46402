# SPDX-License-Identifier: Apache-2.0
"""Workers that others start, over loopback and over a network of namespaces whose links are cut."""
import os
import signal
import subprocess
import time
import uuid

import duckdb
import pytest
from harness import BRANT, Command, assert_error, free_port, rows, wait_for

SECRET = "network-test"
QUERY = "select l_returnflag, count(*) as n, sum(l_quantity)::bigint as q from '{}/lineitem/*.parquet' group by all order by all"
LONG = ("select k % 10 as k, count(*) as n, sum(s)::bigint as s from (select l_orderkey as k, sum(length(md5(l_comment))) as s "
        "from '{}/lineitem/*.parquet' group by all) group by all order by all")


def worker(box, join, *options, prefix=(), secret=SECRET):
    return box.worker(join, *options, prefix=prefix, secret=secret)


def coordinator(box, listen, external, *texts, options=(), workers=0, secret=SECRET, **kw):
    return box.sql(*texts, workers=workers, options=["--external-workers", external, "--listen", listen, *options],
                   env={"BRANT_SECRET": secret} if secret else {}, **kw)


@pytest.fixture(scope="module")
def right(small, big):
    con = duckdb.connect(config={"threads": 2})
    return {text: [tuple(str(v) for v in r) for r in con.execute(text).fetchall()] for text in (QUERY.format(small), LONG.format(big))}


# ---- started by hand


def test_workers_before_and_after_the_coordinator(box, small, right):
    """One waits for the coordinator, the other comes later; both end with it."""
    join = f"127.0.0.1:{free_port()}"
    first = worker(box, join)
    line = first.p.stderr.readline().decode()  # it says that it waits, so it has tried
    assert "no coordinator at" in line and join in line, line
    c = coordinator(box, join, 2, QUERY.format(small), events=True)
    c.events.wait("worker_joined")
    second = worker(box, join)
    c.end()
    assert c.code == 0 and c.err == b"", c.text()
    assert rows(c.out) == right[QUERY.format(small)]
    assert {e["worker"] for e in c.events.of("task_done")} == {1, 2}
    for w in (first, second):
        assert w.end(10).code == 0, w.text()
    assert second.err == b"", second.text()
    box.assert_clean()


def test_own_and_external_workers(box, small, right):
    join = f"127.0.0.1:{free_port()}"
    w = worker(box, join)
    c = coordinator(box, join, 1, QUERY.format(small), workers=2, events=True).end()
    assert c.code == 0 and rows(c.out) == right[QUERY.format(small)], c.text()
    assert len(c.events.of("worker_joined")) == 3
    assert w.end(10).code == 0
    box.assert_clean()


def test_workers_in_another_directory(box, small, right):
    """Relative paths of the query are the coordinator's."""
    join = f"127.0.0.1:{free_port()}"
    (box.dir / "elsewhere").mkdir()
    w = Command(box, [BRANT, "worker", "--join", join, "--temp-dir", box.temp, "--memory", "256MiB"], env={"BRANT_SECRET": SECRET},
                cwd=box.dir / "elsewhere")
    box.commands.append(w)
    c = coordinator(box, join, 1, QUERY.format("."), cwd=small).end()
    assert c.code == 0 and rows(c.out) == right[QUERY.format(small)], c.text()
    assert w.end(10).code == 0
    box.assert_clean()


def test_wrong_secret(box, small, right):
    """The worker ends with a clear message; the cluster goes on without it."""
    join = f"127.0.0.1:{free_port()}"
    c = coordinator(box, join, 1, QUERY.format(small), events=True)
    bad = worker(box, join, secret="another")
    assert bad.end(20).code == 1
    assert "secret" in bad.text() and "BRANT_SECRET" in bad.text(), bad.text()
    good = worker(box, join)
    assert c.end().code == 0 and rows(c.out) == right[QUERY.format(small)], c.text()
    assert good.end(10).code == 0
    box.assert_clean()


def test_no_secret(box, small):
    c = coordinator(box, "127.0.0.1:0", 1, QUERY.format(small), secret=None).end()
    assert_error(c, "BRANT_SECRET")


def test_no_workers_at_all(box):
    c = box.brant("sql", "--workers", 0, "select 1").end()
    assert_error(c, "--external-workers", code=2)


def test_worker_listens_to_the_world_without_a_secret(box):
    c = worker(box, "127.0.0.1:1", "--listen", "0.0.0.0", secret=None).end(10)
    assert c.code == 2 and "BRANT_SECRET" in c.text()


def test_external_worker_dies(box, big, right):
    """Nobody replaces it here: the others finish the query."""
    join = f"127.0.0.1:{free_port()}"
    both = [worker(box, join), worker(box, join)]
    c = coordinator(box, join, 2, LONG.format(big), LONG.format(big), events=True)
    victim = c.events.wait("task_done", stage=1)["worker"]
    pid = next(e["pid"] for e in c.events.of("worker_joined") if e["worker"] == victim)
    os.kill(pid, signal.SIGKILL)
    c.end()
    assert c.code == 0, c.text()
    assert rows(c.out) == right[LONG.format(big)] + [("k", "n", "s")] + right[LONG.format(big)]
    for w in both:
        w.end(10)
    assert sorted(w.code for w in both) == [-signal.SIGKILL, 0]
    assert len(list(box.temp.iterdir())) == 1  # of the killed one: the next worker on this node removes it
    w = worker(box, f"127.0.0.1:{free_port()}")
    wait_for(lambda: b"no coordinator" in w.p.stderr.readline(), 10, "another worker started")
    w.signal(signal.SIGTERM)
    assert w.end(10).code == 0
    box.assert_clean()


def test_coordinator_dies(box, big):
    """Workers stop their tasks, remove their files, and say why they end."""
    join = f"127.0.0.1:{free_port()}"
    both = [worker(box, join, "--rejoin-wait", 0), worker(box, join, "--rejoin-wait", 0)]
    c = coordinator(box, join, 2, LONG.format(big), events=True)
    c.events.wait("task_started")
    c.signal(signal.SIGKILL)
    c.end(5)
    for w in both:
        assert w.end(10).code == 3, w.text()
        assert "this worker stops its tasks" in w.text()
    box.assert_clean()


def test_worker_is_told_to_end_at_once(box, big, right):
    """SIGINT in the middle of a query: it leaves, the other one does its work. (SIGTERM drains: test_workers.py.)"""
    join = f"127.0.0.1:{free_port()}"
    both = [worker(box, join), worker(box, join)]
    c = coordinator(box, join, 2, LONG.format(big), events=True)
    c.events.wait("task_started", stage=1)
    both[0].signal(signal.SIGINT)
    assert both[0].end(10).code == 0
    assert c.end().code == 0 and rows(c.out) == right[LONG.format(big)], c.text()
    assert both[1].end(10).code == 0
    box.assert_clean()


# ---- namespaces


def sh(*args):
    subprocess.run([str(a) for a in args], check=True, capture_output=True)


class Network:
    """Three namespaces, c, a and b, on one bridge in c: 10.77.0.1, .2, .3."""

    def __init__(self):
        if os.geteuid() != 0:
            pytest.skip("network namespaces need root")
        tag = uuid.uuid4().hex[:6]
        self.names = {n: f"brant{tag}{n}" for n in "cab"}
        try:
            for n in "cab":
                sh("ip", "netns", "add", self.names[n])
                self.ip(n, "link", "set", "lo", "up")
            self.ip("c", "link", "add", "br0", "type", "bridge")
            self.ip("c", "addr", "add", "10.77.0.1/24", "dev", "br0")
            self.ip("c", "link", "set", "br0", "up")
            for i, n in enumerate("ab"):
                self.ip("c", "link", "add", f"to{n}", "type", "veth", "peer", "name", "eth0", "netns", self.names[n])
                self.ip("c", "link", "set", f"to{n}", "master", "br0", "up")
                self.ip(n, "addr", "add", f"10.77.0.{i + 2}/24", "dev", "eth0")
                self.ip(n, "link", "set", "eth0", "up")
        except (subprocess.CalledProcessError, FileNotFoundError) as e:
            self.remove()
            pytest.skip(f"no network namespaces here: {getattr(e, 'stderr', e)}")

    def ip(self, name, *args):
        sh("ip", "-n", self.names[name], *args)

    def inside(self, name):
        return ["ip", "netns", "exec", self.names[name]]

    def cut(self, name):
        """Packets vanish, in both directions: nobody is told."""
        self.ip("c", "link", "set", f"to{name}", "nomaster")

    def mend(self, name):
        self.ip("c", "link", "set", f"to{name}", "master", "br0")

    def down(self, name):
        self.ip("c", "link", "set", f"to{name}", "down")

    def remove(self):
        for n in self.names.values():
            subprocess.run(["ip", "netns", "del", n], capture_output=True)


@pytest.fixture
def network():
    n = Network()
    yield n
    n.remove()


def start(box, network, *texts, rejoin_wait=0, **kw):
    """Coordinator in c, workers in a and b; different host names, so that all data goes over TCP."""
    c = coordinator(box, "10.77.0.1:7077", 2, *texts, prefix=network.inside("c"), events=True, **kw)
    workers = [worker(box, "10.77.0.1:7077", "--host-id", n, "--rejoin-wait", rejoin_wait, prefix=network.inside(n)) for n in "ab"]
    return c, workers


def test_query_over_a_network(box, network, small, right):
    c, workers = start(box, network, QUERY.format(small), options=["--stats"])
    c.end()
    assert c.code == 0 and rows(c.out) == right[QUERY.format(small)], c.text()
    assert {e["uri"].rsplit(":", 1)[0] for e in c.events.of("worker_joined")} == {"tcp://10.77.0.2", "tcp://10.77.0.3"}
    assert "(0 B over sockets)" not in c.text(), c.text()
    for w in workers:
        assert w.end(10).code == 0, w.text()
    box.assert_clean()


def test_coordinator_listens_to_all_addresses(box, network, small, right):
    """Its own worker is known to the other host by an address that leads to it."""
    c = coordinator(box, "0.0.0.0:7077", 1, LONG.format(small), workers=1, prefix=network.inside("c"), events=True,
                    options=["--set", "two_step_aggregate=false", "--set", "partitions=4", "--stats"])
    w = worker(box, "10.77.0.1:7077", "--host-id", "a", prefix=network.inside("a"))
    c.end()
    assert c.code == 0, c.text()
    con = duckdb.connect(config={"threads": 2})
    assert rows(c.out) == [tuple(str(v) for v in r) for r in con.execute(LONG.format(small)).fetchall()]
    assert {e["uri"].rsplit(":", 1)[0] for e in c.events.of("worker_joined")} == {"tcp://10.77.0.1", "tcp://10.77.0.2"}
    assert {e["worker"] for e in c.events.of("task_done")} == {1, 2} and not c.events.of("task_failed")
    assert "(0 B over sockets)" not in c.text(), c.text()
    assert w.end(10).code == 0, w.text()
    box.assert_clean()


@pytest.mark.parametrize("how, stage", [("down", 0), ("cut", 1)])
def test_link_is_cut_in_the_middle(box, network, big, right, how, stage):
    """Worker b vanishes without a word: it's given up after worker_silent_ms, the other one makes what it had; b itself ends too."""
    c, workers = start(box, network, LONG.format(big), options=["--set", "worker_silent_ms=3000"])
    c.events.wait("task_done", stage=stage)
    getattr(network, how)("b")
    cut_at = time.monotonic()
    c.end(60)
    took = time.monotonic() - cut_at
    assert c.code == 0 and rows(c.out) == right[LONG.format(big)], c.text()
    assert took < 30, f"{took:.1f} s"
    assert workers[0].end(10).code == 0, workers[0].text()
    assert workers[1].end(20).code == 3, workers[1].text()
    box.assert_clean()


def test_link_comes_back(box, network, big, right):
    """Worker b is given up and gives up itself; when it reaches the coordinator again it joins as a new one and gets work."""
    c, workers = start(box, network, *[LONG.format(big)] * 4, rejoin_wait=60, options=["--set", "worker_silent_ms=2000"])
    b = next(e["pid"] for e in [c.events.wait("worker_joined"), c.events.wait("worker_joined")] if "10.77.0.3" in e["uri"])
    c.events.wait("task_done")
    network.cut("b")
    c.events.wait("worker_lost")
    network.mend("b")
    again = c.events.wait("worker_joined", pid=b)
    c.events.wait("task_done", worker=again["worker"])
    c.end()
    assert c.code == 0, c.text()
    want = right[LONG.format(big)]
    assert rows(c.out) == want + [*[("k", "n", "s"), *want] * 3]
    for w in workers:
        assert w.end(10).code == 0, w.text()
    box.assert_clean()


def test_link_between_workers_is_cut(box, network, big, right):
    """Both still reach the coordinator, but not each other: right rows or a clear error, never a hang."""
    c, workers = start(box, network, LONG.format(big))
    c.events.wait("task_done", stage=0)
    network.ip("a", "route", "add", "blackhole", "10.77.0.3/32")
    network.ip("b", "route", "add", "blackhole", "10.77.0.2/32")
    c.end(80)
    if c.code == 0:
        assert rows(c.out) == right[LONG.format(big)]
    else:
        assert c.text().count("brant: error: ") == 1 and "cannot read partitions" in c.text(), c.text()
    for w in workers:
        w.end(20)
    box.assert_clean()
