# SPDX-License-Identifier: Apache-2.0
"""Little memory: right rows, spilling, bounds that hold, also inside a cgroup that kills what passes them."""
import json
import os
import pathlib
import subprocess
import threading

import compare
import duckdb
import pyarrow.flight as flight
import pytest
import tpch
from cgroup import Cgroup
from harness import Live, assert_error, children, pss_bytes, rows, wait_for

MIB = 1 << 20
STORE_PERCENT = 25  # of --memory: BR_NODE_STORE_PERCENT
SECRET = "memory-test"


class Watch(threading.Thread):
    """Largest PSS of a worker with its executors, and resident set of the caller, sampled while `with` lasts."""

    def __init__(self, caller):
        super().__init__()
        self.caller, self.over, self.worker, self.own = caller, threading.Event(), 0, 0

    def run(self):
        while not self.over.is_set():
            for w in children(self.caller, "brant-worker"):
                self.worker = max(self.worker, sum(pss_bytes(p) for p in [w, *children(w, "brant-executor")]))
            try:
                for line in pathlib.Path(f"/proc/{self.caller}/status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        self.own = max(self.own, int(line.split()[1]) * 1024)
            except OSError:
                pass
            self.over.wait(0.05)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        self.join()


def status(live, worker):
    """What a worker says about itself."""
    uri = next(e["uri"] for e in live.all if e["type"] == "worker_joined" and e["worker"] == worker)
    client = flight.connect("grpc://" + uri.split("//")[1])
    headers = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + SECRET.encode())], timeout=20)
    try:
        return json.loads(next(client.do_action(flight.Action("status", b""), headers)).body.to_pybytes())
    finally:
        client.close()


NARROW = ["--set", "broadcast_bytes=0", "--set", "two_step_aggregate=false"]
QUERIES = {
    "group by unique keys": "select count(*), sum(n), sum(k) from (select l_orderkey as k, l_comment, l_shipdate, count(*) as n "
                            "from part_of_it group by all)",
    "hash join of all rows": "select count(*), sum(length(a.l_comment)) from part_of_it a join part_of_it b on a.l_orderkey = b.l_orderkey "
                             "and a.l_linenumber = b.l_linenumber",
    "distinct": "select count(distinct l_comment) from part_of_it",
    "window": "select sum(r), count(*) from (select l_suppkey % 50, row_number() over (partition by l_suppkey % 50 order by l_comment, "
              "l_orderkey, l_linenumber) as r from part_of_it) where r <= 20000",
}


SORT = "select l_orderkey, l_linenumber, l_extendedprice, l_shipdate, l_comment from part_of_it order by l_comment"


def views(folder, *tables):
    """The tables, and a third of lineitem: 2 million rows."""
    return "".join(f"create view {t} as select * from '{folder}/{t}/*.parquet';" for t in tables or tpch.TABLES) + \
        f"create view part_of_it as select * from '{folder}/lineitem/*.parquet' where l_orderkey <= 2000000;"


@pytest.fixture(scope="module")
def local(big):
    con = duckdb.connect(config={"threads": 2})
    con.execute(views(big))
    return con


@pytest.mark.parametrize("name", QUERIES)
def test_shuffles_larger_than_memory(box, big, local, name):
    c = box.sql(views(big, "lineitem") + QUERIES[name], workers=2, memory="128MiB", options=[*NARROW, "--stats"], events=True)
    with Watch(c.pid) as w:
        c.end(180)
    assert c.code == 0, c.text()
    want = [tuple(str(v) for v in r) for r in local.execute(QUERIES[name]).fetchall()]
    assert rows(c.out) == want
    stats = c.text().splitlines()[-1]
    assert " 0 B spilled" not in stats, stats
    assert w.worker <= 128 * MIB * 1.25, f"a worker took {w.worker // MIB} MiB; {stats}"
    assert w.own < 150 * MIB, f"the coordinator took {w.own // MIB} MiB"
    box.assert_clean()


def test_sort_larger_than_memory(box, big):
    """All rows, in order, through a file of CSV."""
    out = box.dir / "sorted.csv"
    with open(out, "wb") as f:
        c = box.sql(views(big, "lineitem") + SORT, workers=2, memory="128MiB", options=["--stats"],
                    stdout=f)
        with Watch(c.pid) as w:
            c.end(240)
    assert c.code == 0, c.text()
    stats = c.text().splitlines()[-1]
    assert " 0 B spilled" not in stats, stats
    assert w.worker <= 128 * MIB * 1.25, f"a worker took {w.worker // MIB} MiB; {stats}"
    assert w.own < 150 * MIB, f"the coordinator took {w.own // MIB} MiB"
    con = duckdb.connect(config={"threads": 2})
    con.execute(f"create view got as select * from read_csv('{out}', header = true, all_varchar = true, parallel = false)")
    assert con.execute("select count(*) from (select l_comment, lag(l_comment) over () as before from got) where before > l_comment"
                       ).fetchall() == [(0,)]
    sums = "select count(*), sum(l_orderkey::hugeint), sum(hash(l_comment || l_linenumber::varchar)::hugeint) from "
    assert con.execute(sums + "got").fetchall() == con.execute(sums + f"'{big}/lineitem/*.parquet' where l_orderkey <= 2000000").fetchall()
    out.unlink()
    box.assert_clean()


def test_explain_analyze_says_what_was_spilled(box, big):
    c = box.brant("explain", "--analyze", "--format", "json", "--workers", 2, "--threads", 1, "--memory", "128MiB", "--distribute", "always",
                  "--temp-dir", box.temp, views(big, "lineitem") + SORT + " limit 1000000").end(240)
    assert c.code == 0, c.text()
    assert sum(s["measured"]["spilled_bytes"] for s in json.loads(c.out)["stages"]) > 0
    box.assert_clean()


def test_too_little_for_one_group_is_a_clear_error(box, big):
    c = box.sql(views(big, "lineitem") + "select length(string_agg(l_comment, '')) from lineitem", workers=1, memory="128MiB").end()
    assert_error(c, "emory", "--memory", "partitions")


def test_store_keeps_its_bound(box, big):
    """Peak of each store below its share, spilled bytes counted for this query alone."""
    with Live(box, workers=2, memory=256 * MIB, secret=SECRET, settings={"two_step_aggregate": "false"}) as live:
        text = f"select count(*) from (select l_orderkey, l_comment, count(*) from '{big}/lineitem/*.parquet' group by all)"
        got, stats = live.run(text)
        assert got and stats.spilled_bytes > 0
        for worker in (1, 2):
            s = status(live, worker)
            assert 0 < s["store_peak_memory_bytes"] <= 256 * MIB * STORE_PERCENT // 100, s
        assert live.run("select 1")[1].spilled_bytes == 0
        wait_for(lambda: all(status(live, w)["store_memory_bytes"] == 0 for w in (1, 2)), 5, "stores are empty after the queries")
    box.assert_clean()


def test_slow_reader(box, big, small):
    """A caller that takes one batch and waits: its rows stay in the stores within their bound, another query goes on, then the rest
    of the rows comes."""
    with Live(box, workers=2, memory=256 * MIB, secret=SECRET) as live:
        q = live.session.submit(f"select l_orderkey, l_comment from '{big}/lineitem/*.parquet'")
        reader = q.reader()
        n = reader.read_next_batch().num_rows
        bound = 256 * MIB * STORE_PERCENT // 100
        other = "select sum(length(o_comment)) as s, count(*) as n from '{}/orders/*.parquet'"
        for _ in range(3):
            assert live.run(other.format(small))[0][0][1] == 150000
            assert all(status(live, w)["store_peak_memory_bytes"] <= bound for w in (1, 2))
        before = [pss_bytes(p) for p in children(os.getpid(), "brant-worker")]
        assert sum(before) < 2 * 256 * MIB
        n += sum(b.num_rows for b in reader)
        assert n == 6001215
        q.free()
        assert all(status(live, w)["store_peak_memory_bytes"] <= bound for w in (1, 2))
    box.assert_clean()


# ---- inside a cgroup


@pytest.fixture
def cgroup(box):
    made = []

    def make(limit):
        made.append(Cgroup(f"brant-test-{box.mark[:12]}", limit))
        return made[-1]

    yield make
    for g in made:
        g.remove()


@pytest.mark.parametrize("number", [9, 18, 21])
def test_tpch_in_a_cgroup(box, big, local, cgroup, number):
    """Two workers of 192 MiB in 512 MiB, caller included: nobody is killed."""
    g = cgroup(512 * MIB)
    text = tpch.queries()[number]
    c = box.sql(views(big) + text, workers=2, memory="192MiB", options=["--format", "arrow"], prefix=g.prefix()).end(180)
    assert c.code == 0, c.text()
    import pyarrow as pa
    got = compare.rows_of(pa.ipc.open_stream(c.out).read_all())
    want = local.execute(text).arrow()
    want = compare.rows_of(want.read_all() if hasattr(want, "read_all") else want)
    assert compare.difference(got, want, ordered=True) is None
    assert g.oom_kills() == 0
    box.assert_clean()


def test_sort_in_a_cgroup(box, big, cgroup):
    g = cgroup(448 * MIB)
    c = box.sql(views(big, "lineitem") + SORT, workers=2, memory="128MiB", stdout=subprocess.DEVNULL,
                prefix=g.prefix()).end(240)
    assert c.code == 0 and c.err == b"", c.text()
    assert g.oom_kills() == 0
    box.assert_clean()


def test_default_memory_fits_the_cgroup(box, big, cgroup):
    """Without --memory: 70 % of what the cgroup has, over all workers."""
    g = cgroup(600 * MIB)
    c = box.brant("sql", "--workers", 2, "--threads", 1, "--distribute", "always", "--format", "csv", "--temp-dir", box.temp,
                  views(big, "lineitem") + QUERIES["distinct"], prefix=g.prefix()).end(180)
    assert c.code == 0 and c.err == b"", c.text()
    assert g.oom_kills() == 0
    box.assert_clean()
