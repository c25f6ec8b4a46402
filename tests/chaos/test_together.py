# SPDX-License-Identifier: Apache-2.0
"""Several queries on one cluster, at the same time and one after the other, while workers die and others come."""
import threading

import faults
import pytest
import workload

QUERIES = workload.all_queries()


def finished(answers, run):
    print(f"{run.query.name}: {run.summary()}")
    assert run.fired(), run.summary()
    if not run.handed_out():
        assert run.error is None, f"{run.error} {run.summary()}"
        assert answers.difference(run.query, run.table) is None, f"{answers.difference(run.query, run.table)} {run.summary()}"


@pytest.mark.parametrize("fault", [
    pytest.param("kill-worker:owner@task_done#12", marks=pytest.mark.short), "kill-executor:all@task_started#14", "refuse:owner@stage_done#1",
    "term-worker:actor@task_done#10"])
def test_queries_at_the_same_time(make_cluster, answers, mode, fault):
    """A worker that is lost is lost for all of them; a query that is cancelled, for itself alone."""
    c = make_cluster(mode=mode, relays=True, settings={"probe_ms": "1000"})
    for k, v in workload.WIDE.items():
        c.session.set(k, v)
    queries = [workload.Query(n, QUERIES[n].sql, QUERIES[n].ordered, {}, QUERIES[n].indeterminate) for n in ("chain", "group", "random")]
    for q in queries:
        answers.right(q)
    runs = [faults.Run(c, q, [fault] if i == 0 else []) for i, q in enumerate(queries)]
    cancelled = faults.Run(c, workload.Query("window", QUERIES["window"].sql), ["cancel:actor@task_done#2"])
    threads = [threading.Thread(target=r.go) for r in [*runs, cancelled]]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for r in runs:
        finished(answers, r)
    assert cancelled.error and cancelled.error.code == "CANCELLED", cancelled.error
    c.close()
    c.over = True


def test_a_long_life(make_cluster, answers, mode):
    """One session: in each query a worker dies, drains, or loses its executor, and another one joins."""
    c = make_cluster(mode=mode)
    for i, name in enumerate(("group", "q9", "chain", "sort", "random", "join", "q18", "window", "q5", "distinct")):
        what = ("kill-worker", "term-worker", "kill-executor")[i % 3]
        finished(answers, faults.Run(c, QUERIES[name], [f"{what}:owner@stage_done#1", "join-worker:other@stage_done#1"]).go())
    c.close()
    c.over = True
