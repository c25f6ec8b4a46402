# SPDX-License-Identifier: Apache-2.0
"""What executors keep between the tasks of a query (connections with their attached files), and stages over files in the order of a key, when
the query is cancelled or a worker dies in the middle. Faults follow events of the query, never a clock."""
import os
import signal

import brantlib
import compare
import duckdb
import pytest
from harness import Live

GROUPS = ("select k % 10 as k, count(*) as n, sum(s) as s from (select l_orderkey as k, sum(length(md5(l_comment))) as s from '{0}/lineitem/*.parquet' "
          "group by all) group by all order by all")
JOIN = ("select o_orderpriority as p, count(*) as n, sum(length(md5(l_comment))) as s from '{0}/lineitem/*.parquet' "
        "join '{0}/orders/*.parquet' on l_orderkey = o_orderkey group by all order by all")
WINDOW = ("select r, count(*) as n, sum(length(md5(c))) as s from (select row_number() over (partition by l_orderkey order by l_linenumber) as r, "
          "l_comment as c from '{0}/lineitem/*.parquet') group by all order by all")


@pytest.fixture(scope="module")
def right(big):
    con = duckdb.connect(config={"threads": 2})
    return {q: con.execute(q.format(big)).fetchall() for q in (GROUPS, JOIN, WINDOW)}


def same(table, want):
    return [tuple(str(v) for v in r) for r in compare.rows_of(table)] == [tuple(str(v) for v in r) for r in want]


@pytest.mark.parametrize("query, mode", [(GROUPS, "staged"), (JOIN, "eager"), (WINDOW, "eager")], ids=["groups", "join", "window"])
def test_worker_is_killed_over_files_in_order(box, big, right, query, mode):
    """Scans that are cut at values of a key: a split that is read again has the same rows, on whichever worker."""
    with Live(box, workers=3, memory=512 << 20, mode=mode, settings={"sorted_scans": "true"}) as live:
        sql = query.format(big)
        text = live.session.explain(sql)
        assert "split by " in text, text
        q = live.session.submit(sql)
        pid = live.worker_pid(live.wait("task_done", stage=0)["worker"])
        os.kill(pid, signal.SIGKILL)
        try:
            assert same(q.table(), right[query])
            assert q.stats().workers_lost == 1
        finally:
            q.free()
        again = [e for e in live.of("task_assigned") if e["stage"] == 0 and e["attempt"] > 1]
        assert again and live.of("output_lost")
        live.wait("worker_joined")
        assert same(live.session.run(sql)[0], right[query])
    box.assert_clean()


@pytest.mark.parametrize("fault", ["cancel", "worker", "executor"])
def test_attached_files_are_closed_after_a_fault(box, big, right, tmp_path, fault):
    """Each query leaves the file to whoever writes it next, however the query ended: what executors kept for it is dropped."""
    path = tmp_path / "own.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE t AS SELECT i::BIGINT AS k, 1 AS n FROM range(10) r(i)")
    sql = f"select k, count(*) as n, sum(s * t.n) as s from ({GROUPS.format(big)}) join st.t using (k) group by all order by all"
    want = [(k, 1, s) for k, _, s in right[GROUPS]]
    with Live(box, workers=3, memory=512 << 20) as live:
        for turn in range(2):
            live.session.run(f"ATTACH '{path}' AS st")
            live.skip()
            q = live.session.submit(sql)
            event = live.wait("task_done", query=live.wait("query_started")["query"])  # its connection is kept by then
            if fault == "cancel":
                q.cancel()
                with pytest.raises(brantlib.BrantError, match="(?i)cancel"):
                    q.table()
                q.free()
            else:
                os.kill(live.worker_pid(event["worker"]) if fault == "worker" else live.executor_pid(event["worker"]), signal.SIGKILL)
                assert same(q.table(), want)
                q.free()
            assert same(live.session.run(sql)[0], want)
            live.session.run("DETACH st")
            live.session.run(f"ATTACH '{path}' AS st (READ_WRITE)")  # waits for executors to close it, 5 s at most
            live.session.run(f"INSERT INTO st.t VALUES ({100 + turn}, 1)")
            assert compare.rows_of(live.session.run("SELECT count(*) FROM st.t")[0]) == [(11 + turn,)]
            live.session.run("DETACH st")
    box.assert_clean()
