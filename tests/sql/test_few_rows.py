# SPDX-License-Identifier: Apache-2.0
"""Stages that turn out to have few rows become fewer: sorts without ranges, tasks that follow others gathered into one, stages of one task in a
chain. What explain --analyze says of it, and right answers in the right order."""
import json

import pytest

import brantlib
import compare
import queries

SETTINGS = {"broadcast_bytes": 0, "sort_one_task_rows": 0, "split_bytes": 20000, "partitions": 8, "sorted_scans": "false"}
LITTLE = {"task_target_bytes": 100 << 20}  # given partitions are kept otherwise

GROUPS = "SELECT v, count(*) AS n, sum(k) AS s, min(s) AS m FROM facts GROUP BY v"
ABOVE = "SELECT f.k, f.s FROM facts f WHERE f.v > 90 AND f.k % 10000 < 3000 AND f.v + 2 > (SELECT avg(g.v) FROM facts g WHERE g.k = f.k + 1)"
BEST = f"WITH g AS MATERIALIZED ({GROUPS}) SELECT g.v, g.s, f.w FROM g JOIN few f ON f.w = g.v % 10 WHERE g.s = (SELECT max(s) FROM g)"
# (text, what is said of a stage)
SORTED = [
    (f"{GROUPS} ORDER BY v DESC", "no ranges: few rows to sort"),
    (f"{GROUPS} ORDER BY m, n, v", "no ranges: few rows to sort"),
    ("SELECT v, n FROM (SELECT v % 3 AS v, count(*) AS n FROM facts GROUP BY ALL) ORDER BY n < 0, v", "no ranges: few rows to sort"),
    (f"{BEST} ORDER BY v, w", "no ranges: few rows to sort"),
    (f"SELECT v, m FROM ({GROUPS}) ORDER BY v LIMIT 5", "with stage"),
    (f"{ABOVE} ORDER BY k", "tasks → 1"),
    (f"{BEST} ORDER BY v, w", "with stage"),
    ("SELECT v, string_agg(s, ',' ORDER BY k) AS a FROM facts WHERE k < 300 GROUP BY v ORDER BY v", "no ranges: few rows to sort"),
    ("SELECT count(*) AS n, sum(n) AS s, first(m ORDER BY v) AS f FROM (SELECT v % 7 AS v, count(*) AS n, max(s) AS m FROM facts GROUP BY ALL)", "with stage"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("few")
    duck = queries.Duck()
    for i in range(6):
        duck.execute(f"COPY (SELECT {i} * 10000 + i AS k, i % 97 AS v, 'x' || i AS s FROM range(10000) t(i)) TO '{folder}/facts-{i}.parquet'")
    duck.execute(f"COPY (SELECT i * 6000 AS k, i AS w FROM range(10) t(i)) TO '{folder}/few.parquet'")
    views = [f"CREATE VIEW facts AS SELECT * FROM '{folder}/facts-*.parquet'", f"CREATE VIEW few AS SELECT * FROM '{folder}/few.parquet'"]
    for v in views:
        duck.execute(v)
    return views, duck


def open_session(views, mode="staged", **settings):
    s = brantlib.Session(workers=2, threads=1, distribute="always", mode=mode, settings={**SETTINGS, **settings})
    for v in views:
        s.run(v)
    return s


def measured(session, sql):
    return [s["measured"] for s in json.loads(session.explain(sql, True, True))["stages"]]


def said(stages):
    return [s["adapted"] for s in stages if "adapted" in s]


def check(session, duck, sql, ordered):
    table, _ = session.run(sql)
    assert compare.difference(compare.rows_of(table), compare.rows_of(duck.con.execute(sql).to_arrow_table()), ordered=ordered) is None, sql


@pytest.mark.parametrize("mode, passes", [("staged", 0), ("staged", 3), ("eager", 0)])
def test_few_rows_take_few_stages(data, mode, passes):
    """In passes: what sorts, or follows others, may not be run in parts of its keys."""
    views, duck = data
    with open_session(views, mode, task_passes=passes, **LITTLE) as s:
        for sql, what in SORTED:
            if mode == "staged":
                stages = measured(s, sql)
                assert any(what in t for t in said(stages)), (sql, said(stages))
                assert sum(m["tasks"] == 0 for m in stages) >= (what != "tasks → 1"), sql
            check(s, duck, sql, "ORDER BY" in sql)


def test_many_rows_take_the_stages_of_the_plan(data):
    """By the true sizes: what is little is what task_target_bytes says, if that is less."""
    views, duck = data
    with open_session(views, task_target_bytes=300) as s:
        for sql, _ in SORTED:
            assert not [t for t in said(measured(s, sql)) if "few rows" in t or "with stage" in t], sql
            check(s, duck, sql, "ORDER BY" in sql)
    rows = "SELECT a.k, b.s, a.v FROM facts a JOIN facts b ON a.v = b.v AND a.k % 5000 = b.k % 5000 ORDER BY a.k, b.k"
    with open_session(views, **LITTLE) as s:
        stages = measured(s, rows)
        assert not [t for t in said(stages) if "few rows" in t], said(stages)
        check(s, duck, rows, True)


def test_much_work_with_few_rows_is_shared_out(data):
    """Joins without an equality, functions that take long."""
    views, duck = data
    text = "WITH c AS MATERIALIZED (SELECT k, v, s FROM facts WHERE k % 100 = 5) SELECT a.k, count(*) AS n, max(b.v) AS v FROM c a JOIN c b ON {} GROUP BY a.k"
    with open_session(views, **{**LITTLE, "broadcast_bytes": 1 << 20}) as s:
        for on, gathered in (("a.k = b.k", True), ("a.k < b.k + a.v", False), ("a.k = b.k AND minhash(a.s || b.s, 4, 2, 1)[1] >= 0", False)):
            stages = json.loads(s.explain(text.format(on), True, True))["stages"]
            assert [m["measured"]["tasks"] > 1 for m in stages if "join" in m["label"] and m["measured"]["tasks"]] == [not gathered], on
            if "minhash" not in on:
                check(s, duck, text.format(on), False)


NUMBERED = "SELECT k, row_number() OVER (ORDER BY v, k) AS rn FROM facts WHERE k % 100 = 5"
# (text, what the label of the stage has that would have several tasks, is it sorted at once, does DuckDB know its functions)
AFTER_SORTS = [
    ("SELECT k, minhash(s, 4, 2, 1) AS h FROM (SELECT * FROM facts WHERE k % 20 = 5 ORDER BY v, k)", "sort", False, False),
    (f"SELECT x.k, y.w FROM ({NUMBERED}) x JOIN few y ON x.rn < y.w * 9 + 5", "join", False, True),
    (f"SELECT x.k, y.w FROM ({NUMBERED}) x JOIN few y ON x.rn = y.w * 9 + 5", "join", True, True),
    (f"SELECT k, minhash(rn::VARCHAR, 4, 2, 1) AS h FROM ({NUMBERED})", "window, ", False, False),
    (NUMBERED, "window", True, True),
]


def test_much_work_after_a_sort_of_few_rows_is_shared_out(data):
    """In the stage that sorts, and in those that follow its tasks one by one: a window's second step, what is projected and joined there."""
    views, duck = data
    with open_session(views, **{**LITTLE, "broadcast_bytes": 1 << 20, "partitions": 6}) as s:
        for sql, label, at_once, known in AFTER_SORTS:
            stages = json.loads(s.explain(sql, True, True))["stages"]
            what = said([m["measured"] for m in stages])
            assert ("no ranges: few rows to sort" in what) == at_once, (sql, what)
            assert any(m["measured"]["tasks"] > 1 for m in stages if label in m["label"] and "scan" not in m["label"]) != at_once, sql
            if known:
                check(s, duck, sql, False)
        hashes = compare.rows_of(s.run(AFTER_SORTS[0][0])[0])
        unsorted = dict(compare.rows_of(s.run("SELECT k, minhash(s, 4, 2, 1) AS h FROM facts WHERE k % 20 = 5")[0]))
        keys = duck.con.execute("SELECT k FROM facts WHERE k % 20 = 5 ORDER BY v, k").fetchall()
        assert hashes == [(k, unsorted[k]) for (k,) in keys]


def test_a_number_of_parts_that_was_asked_for_stays(data):
    views, duck = data
    sql = f"SELECT v + 1 AS v, n FROM into_partitions(({GROUPS}), 5)"
    with open_session(views, **LITTLE) as s:
        assert 5 in [m["tasks"] for m in measured(s, sql)]
        check(s, duck, f"SELECT v + 1 AS v, n FROM ({GROUPS})", False)


def test_an_error_in_a_chain_is_the_users(data):
    views, _ = data
    with open_session(views, **LITTLE) as s:
        with pytest.raises(brantlib.BrantError, match="too many") as e:
            s.run(f"SELECT CASE WHEN n > 10 THEN error('too many') ELSE v END AS v FROM ({GROUPS}) ORDER BY 1")
        assert "in task" in str(e.value)
