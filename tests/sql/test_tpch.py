# SPDX-License-Identifier: Apache-2.0
"""TPC-H at scale 0.1: all 22, with broadcast and with hash joins, rows in DuckDB's order where the query orders them."""
import json
import pathlib

import pytest

import brantlib
import compare
import tpch

SCALE = "0.1"
SETTINGS = {
    "default": {},
    "adapted": {"broadcast_bytes": 0, "sort_one_task_rows": 0, "partitions": 16, "task_target_bytes": 300000},
    "eager": {"broadcast_bytes": 0, "sort_one_task_rows": 0, "partitions": 4},
    "hash": {"broadcast_bytes": 0, "sort_one_task_rows": 0, "partitions": 5},
    "passes": {"broadcast_bytes": 0, "sort_one_task_rows": 0, "partitions": 3, "two_step_aggregate": "false", "task_passes": 4},
}


@pytest.fixture(scope="module", params=sorted(SETTINGS))
def session(request):
    tpch.make_data(SCALE)
    tpch.queries()
    tpch.make_answers(SCALE)
    mode = "eager" if request.param == "eager" else "staged"
    with brantlib.Session(workers=3, threads=1, distribute="always", mode=mode, settings=SETTINGS[request.param]) as s:
        for v in tpch.views(SCALE):
            s.run(v)
        yield s


@pytest.mark.parametrize("nr", range(1, 23))
def test_query(session, nr):
    text = tpch.queries()[nr]
    plan = json.loads(session.explain(text, False, True))
    assert not plan.get("whole_query_reason"), plan["whole_query_reason"]
    assert len(plan["stages"]) >= 2
    table, stats = session.run(text)
    want = tpch.answer(SCALE, nr)
    assert table.column_names == want.column_names
    assert stats.distributed and stats.stages == len(plan["stages"]) and stats.bytes_shuffled > 0
    assert compare.difference(compare.rows_of(table), compare.rows_of(want), ordered="order by" in text.lower()) is None
