# SPDX-License-Identifier: Apache-2.0
"""TPC-DS at scale 0.1: all 99 distributed, with broadcast and with hash joins and sorts by ranges.

What runs as one task, and why, is listed below; anything else that does is a failure. Some queries have an ORDER BY with ties under
their LIMIT, so other rows may come: then the same query without its last LIMIT must give the same rows.
"""
import json

import pytest

import brantlib
import compare
import queries
import tpcds

SCALE = "0.1"
SETTINGS = {
    "default": {},
    "hash": {"inline_bytes": 0, "broadcast_bytes": 0, "sort_one_task_rows": 0, "partitions": 4},
}
# rank() OVER (ORDER BY …): few rows are one window in one task; else ranges, whose shares are put together in one
ONE_TASK = {"default": {44: "window without a common PARTITION BY", 49: "window without a common PARTITION BY"},
            "hash": {44: "the tasks' shares of a window", 49: "the tasks' shares of a window"}}


@pytest.fixture(scope="module", params=sorted(SETTINGS))
def session(request):
    tpcds.make_data(SCALE)
    tpcds.make_answers(SCALE)
    with brantlib.Session(workers=3, threads=1, distribute="always", settings=SETTINGS[request.param]) as s:
        s.one_task = ONE_TASK[request.param]
        for v in tpcds.views(SCALE):
            s.run(v)
        yield s


@pytest.fixture(scope="module")
def duck():
    tpcds.make_data(SCALE)
    d = queries.Duck()
    for v in tpcds.views(SCALE):
        d.execute(v)
    return d


def one_task_reasons(plan):
    reasons = {s["one_task_reason"] for s in plan["stages"] if s["one_task_reason"]}
    return {r for r in reasons if not any(e in r for e in queries.EXPECTED)}


@pytest.mark.parametrize("nr", range(1, 100))
def test_query(session, duck, nr):
    text = tpcds.queries(SCALE)[nr]
    plan = json.loads(session.explain(text, False, True))
    assert not plan.get("whole_query_reason"), plan["whole_query_reason"]
    assert one_task_reasons(plan) == {r for n, r in session.one_task.items() if n == nr}
    assert len(plan["stages"]) >= 2
    table, stats = session.run(text)
    want = duck.read(tpcds.answer(SCALE, nr))
    got = duck.read(table)
    assert got.names == want.names and got.types == want.types
    assert stats.distributed and stats.stages == len(plan["stages"])
    diff = compare.difference(got.rows, want.rows, ordered=True)
    if diff is not None:
        diff = queries.without_limit(session, duck, text)
    if diff is not None:
        pytest.fail(diff, pytrace=False)
