# SPDX-License-Identifier: Apache-2.0
"""Workers of one host: what lies in the memory of one is mapped by the executors of the others, not sent."""
import os
import signal

import compare
import duckdb
import pytest
from harness import Live, worker_status

SECRET = "neighbours-test"
# An exchange of all rows into a few large partitions, then slow work over them.
QUERY = "select count(*), sum(length(md5(l_comment))), sum(l_quantity) from repartition((select * from {}), 6, l_orderkey)"


@pytest.fixture(scope="module")
def lines(big):
    return f"'{big}/lineitem/*.parquet'"


@pytest.fixture(scope="module")
def right(lines):
    return duckdb.connect(config={"threads": 2}).execute(QUERY.replace("repartition((select * from {}), 6, l_orderkey)", lines)).fetchall()


def same(got, want):
    return [tuple(float(v) for v in t) for t in got] == [tuple(float(v) for v in t) for t in want]


def served(live):
    return sum(worker_status(e["uri"], SECRET)["served_bytes"] for e in live.of("worker_joined"))


def test_neighbours_read_memory(box, lines, right):
    with Live(box, workers=2, memory=2 << 30, secret=SECRET, mode="staged", settings={"split_bytes": "32MB"}) as live:
        got, stats = live.run(QUERY.format(lines))
        assert same(got, right)
        assert stats.bytes_shuffled > 200 << 20
        assert served(live) < stats.bytes_shuffled // 100, (served(live), stats.bytes_shuffled)
    box.assert_clean()


def test_what_is_on_disk_is_sent(box, lines, right):
    with Live(box, workers=2, memory=256 << 20, secret=SECRET, mode="staged", settings={"split_bytes": "32MB"}) as live:
        got, stats = live.run(QUERY.format(lines))
        assert same(got, right)
        assert stats.spilled_bytes > 0
        assert served(live) > 10 << 20
    box.assert_clean()


def test_the_owner_is_killed_while_its_memory_is_read(box, lines, right):
    """A task that has mapped what it reads goes on; the lost outputs are made again for those that come later."""
    with Live(box, workers=2, memory=2 << 30, secret=SECRET, mode="staged", settings={"split_bytes": "32MB"}) as live:
        q = live.session.submit(QUERY.format(lines))
        live.wait("stage_done", stage=0)
        reader = live.wait("task_started", stage=1)["worker"]
        owner = next(e["worker"] for e in live.of("worker_joined") if e["worker"] != reader)
        os.kill(live.worker_pid(owner), signal.SIGKILL)
        try:
            got, stats = compare.rows_of(q.table()), q.stats()
        finally:
            q.free()
        assert same(got, right)
        assert stats.workers_lost == 1 and stats.executors_lost == 0
    box.assert_clean()
