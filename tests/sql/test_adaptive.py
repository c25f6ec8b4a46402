# SPDX-License-Identifier: Apache-2.0
"""Stages that are planned again with true sizes before they start: what explain --analyze says of it, and right answers."""
import json
import re

import pytest

import brantlib
import compare
import queries

SETTINGS = {"broadcast_bytes": 0, "sort_one_task_rows": 0, "split_bytes": 20000, "partitions": 64,
            "sorted_scans": "false"}  # the files are in the order of k: nothing would move


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """facts: 60,000 rows in 6 files; few: 10 rows; none: no rows."""
    folder = tmp_path_factory.mktemp("adaptive")
    duck = queries.Duck()
    for i in range(6):
        duck.execute(f"COPY (SELECT {i} * 10000 + i AS k, i % 97 AS v, 'x' || i AS s FROM range(10000) t(i)) TO '{folder}/facts-{i}.parquet'")
    for i in range(6):  # half of the rows have one key
        duck.execute(f"COPY (SELECT CASE WHEN i % 2 = 0 THEN 7 ELSE {i} * 10000 + i END AS k, i AS v, 's' || i AS s FROM range(10000) t(i)) "
                     f"TO '{folder}/skewed-{i}.parquet'")
    duck.execute(f"COPY (SELECT i AS k, i * 3 AS w FROM range(0, 60000, 7) t(i) UNION ALL SELECT 7, 1 UNION ALL SELECT NULL, 2) "
                 f"TO '{folder}/sides.parquet'")
    duck.execute(f"COPY (SELECT i * 6000 AS k, i AS w FROM range(10) t(i)) TO '{folder}/few.parquet'")
    duck.execute(f"COPY (SELECT i AS k, i AS w FROM range(10) t(i) WHERE i < 0) TO '{folder}/none.parquet'")
    return folder


def views(data):
    return [f"CREATE VIEW facts AS SELECT * FROM '{data}/facts-*.parquet'", f"CREATE VIEW few AS SELECT * FROM '{data}/few.parquet'",
            f"CREATE VIEW none AS SELECT * FROM '{data}/none.parquet'", f"CREATE VIEW sides AS SELECT * FROM '{data}/sides.parquet'",
            f"CREATE VIEW skewed AS SELECT * FROM '{data}/skewed-*.parquet'"]


@pytest.fixture(scope="module")
def duck(data):
    d = queries.Duck()
    for v in views(data):
        d.execute(v)
    return d


def open_session(data, mode="staged", **settings):
    s = brantlib.Session(workers=2, threads=1, distribute="always", mode=mode, settings={**SETTINGS, **settings})
    for v in views(data):
        s.run(v)
    return s


def adapted(session, sql):
    """What explain --analyze says: {stage: text}, and the number of tasks of each stage."""
    stages = json.loads(session.explain(sql, True, True))["stages"]
    return ({s["id"]: s["measured"]["adapted"] for s in stages if "adapted" in s["measured"]}, {s["id"]: s["measured"]["tasks"] for s in stages})


def check(session, duck, sql):
    table, _ = session.run(sql)
    assert compare.difference(compare.rows_of(table), compare.rows_of(duck.con.execute(sql).to_arrow_table()), ordered=False) is None


GROUPS = "SELECT v, count(*) AS n, sum(k) AS s FROM facts GROUP BY v"


def test_small_partitions_go_to_one_task(data, duck):
    with open_session(data, task_target_bytes=100 << 20) as s:
        said, tasks = adapted(s, GROUPS)
        assert "coalesced 64 → 1" in said.values()
        check(s, duck, GROUPS)
        text = s.explain(GROUPS, True, False)
        assert re.search(r"stage \d+: coalesced 64 → 1", text)


def test_some_go_together(data, duck):
    sql = "SELECT f.k, f.s, g.v FROM facts f JOIN facts g ON f.k = g.k WHERE g.v < 90"
    with open_session(data, task_target_bytes=100000) as s:
        said, tasks = adapted(s, sql)
        numbers = [int(m.group(1)) for m in map(re.compile(r"coalesced 64 → (\d+)").match, said.values()) if m]
        assert numbers and all(1 < n < 64 for n in numbers)
        check(s, duck, sql)


def test_the_number_that_was_given_stays(data, duck):
    with open_session(data) as s:
        said, tasks = adapted(s, GROUPS)
        assert not said and 64 in tasks.values()
    with open_session(data, task_target_bytes=100 << 20, adaptive="false") as s:
        said, tasks = adapted(s, GROUPS)
        assert not said and 64 in tasks.values()


def test_parts_that_were_asked_for_stay(data, duck):
    sql = "SELECT * FROM into_partitions((SELECT k FROM facts), 9)"
    with open_session(data, task_target_bytes=100 << 20) as s:
        said, tasks = adapted(s, sql)
        assert not said and 9 in tasks.values()


def test_nothing_is_read_for_no_keys(data, duck):
    sql = "SELECT count(*), sum(f.v) FROM facts f JOIN none n ON f.k = n.k"
    rows = "SELECT f.* FROM facts f JOIN none n ON f.k = n.k"
    with open_session(data, filter_bytes="32MiB") as s:
        said, tasks = adapted(s, rows)
        assert any(t.startswith("no rows") for t in said.values()) and 0 in tasks.values()
        check(s, duck, rows)
        check(s, duck, sql)
        check(s, duck, "SELECT f.v, n.w FROM facts f LEFT JOIN none n ON f.k = n.k")


def test_one_empty_side(data, duck):
    """Whatever the kind of the join: no tasks where no row could show, and all rows where the other side's show alone."""
    none = "(SELECT f.k, f.v FROM facts f JOIN none n ON f.k = n.k)"
    nothing = [f"SELECT y.w FROM {none} e LEFT JOIN sides y ON e.v = y.k", f"SELECT y.w FROM sides y RIGHT JOIN {none} e ON e.v = y.k",
               f"SELECT e.v AS w FROM {none} e ANTI JOIN sides y ON e.v = y.k", f"SELECT e.v AS w FROM {none} e SEMI JOIN sides y ON e.v = y.k",
               f"SELECT y.w FROM sides y SEMI JOIN {none} e ON e.v = y.k", f"SELECT y.w FROM {none} e ASOF LEFT JOIN sides y ON e.v = y.k AND e.k >= y.w",
               f"SELECT y.w FROM {none} e LEFT JOIN sides y ON e.v IS NOT DISTINCT FROM y.k"]
    rows = [f"SELECT y.w FROM sides y LEFT JOIN {none} e ON e.v = y.k", f"SELECT y.w FROM {none} e RIGHT JOIN sides y ON e.v = y.k",
            f"SELECT y.w FROM {none} e FULL JOIN sides y ON e.v = y.k", f"SELECT y.w FROM sides y ANTI JOIN {none} e ON e.v = y.k",
            f"SELECT y.w FROM sides y LEFT JOIN {none} e ON e.v IS NOT DISTINCT FROM y.k",
            f"SELECT w FROM sides y WHERE (k IN (FROM {none} SELECT v)) IS NOT TRUE"]
    with open_session(data, filter_bytes=0, task_target_bytes=1000) as s:
        for sql in nothing + rows:
            grouped = f"SELECT w % 100, count(*) FROM ({sql}) GROUP BY ALL"  # the last stage always runs
            found = json.loads(s.explain(grouped, True, True))["stages"]
            idle = [st for st in found if st["measured"]["tasks"] == 0 and "one side" in st["measured"].get("adapted", "")]
            assert len(idle) == (2 if sql in nothing else 1), sql
            check(s, duck, grouped)
            check(s, duck, f"SELECT count(*), sum(w) FROM ({sql})")


def test_stages_without_rows_run_no_tasks(data, duck, tmp_path):
    """Whatever the chain: joins, groups and sorts over a join that has no rows. What counts them still gives its row, a file is written."""
    join = "SELECT f.k, f.s, g.v, y.w FROM facts f JOIN none n ON f.k = n.k JOIN facts g ON g.v = f.v JOIN sides y ON y.k = g.k"
    cases = [join, f"SELECT k, count(*), max(s) FROM ({join}) GROUP BY k", f"SELECT count(*), sum(w) FROM ({join})", f"{join} ORDER BY f.s, y.w",
             f"SELECT s, row_number() OVER (PARTITION BY k ORDER BY s) FROM ({join})", f"SELECT k FROM ({join}) UNION SELECT k FROM none"]
    said = []
    with open_session(data, filter_bytes="32MiB", task_target_bytes=1000) as s:
        for sql in cases:
            stages = json.loads(s.explain(sql, True, True))["stages"]
            by_hash = [st for st in stages[:-1] if any(i["kind"] == "HASH" for i in st["inputs"])]
            assert any(st["measured"]["tasks"] == 0 for st in by_hash), sql
            said += [st["measured"].get("adapted", "") for st in by_hash]
            check(s, duck, sql)
        assert sum("nothing was shuffled" in t for t in said) >= 2 and any("of one side" in t for t in said), said
        for outer in ("sides y LEFT JOIN facts f", "facts f RIGHT JOIN sides y", "sides y FULL JOIN facts f"):
            check(s, duck, f"SELECT y.w, count(*), max(f.s) FROM {outer} ON y.k = f.v AND f.k < 0 GROUP BY y.w")
        check(s, duck, "SELECT y.w + 1 AS w, count(f.s) FROM (FROM facts WHERE v > 500) f RIGHT JOIN sides y ON y.k = f.k GROUP BY 1")
        s.run(f"COPY (SELECT k, count(*) AS n FROM ({join}) GROUP BY k) TO '{tmp_path}/none.parquet' (FORMAT parquet)")
        assert duck.con.execute(f"FROM '{tmp_path}/none.parquet'").fetchall() == []


def test_splits_go_together_where_tables_are_large(data, duck, tmp_path):
    for i in range(4):  # 5 MiB each: two splits a slot with a broadcast side
        duck.execute(f"COPY (SELECT (random() * 1e15)::BIGINT AS r, i % 50000 AS k FROM range(640000) t(i)) TO '{tmp_path}/wide-{i}.parquet'")
    view = f"CREATE OR REPLACE VIEW wide AS SELECT * FROM '{tmp_path}/wide-*.parquet'"
    duck.execute(view)
    with brantlib.Session(workers=1, threads=1, distribute="always", mode="staged", settings={"inline_bytes": 0}) as s:
        for v in [*views(data), view]:
            s.run(v)
        for table, joined in (("facts", True), ("few", False)):
            sql = f"SELECT w.k % 10 AS g, count(*) AS n, sum(w.r) AS s FROM wide w JOIN {table} t ON w.k = t.k GROUP BY g"
            said, tasks = adapted(s, sql)
            assert any("splits joined 2 → 1" in t for t in said.values()) == joined, (said, tasks)
            check(s, duck, sql)


SPLIT = [
    "SELECT x.v, x.s, y.w FROM skewed x JOIN sides y ON x.k = y.k",
    "SELECT y.w % 5 AS g, count(*), sum(x.v), min(x.s) FROM skewed x JOIN sides y ON x.k = y.k GROUP BY g",
    "SELECT count(*), sum(x.v + y.w) FROM skewed x JOIN sides y ON x.k = y.k WHERE x.v + y.w > 5",
    "SELECT x.v, x.s, y.w FROM skewed x LEFT JOIN sides y ON x.k = y.k",
    "SELECT x.* FROM skewed x SEMI JOIN sides y ON x.k = y.k",
    "SELECT x.* FROM skewed x ANTI JOIN sides y ON x.k = y.k",
    "SELECT y.w, x.v, x.s FROM sides y RIGHT JOIN skewed x ON x.k = y.k",
    "SELECT u.k, u.v, y.w FROM (SELECT k, v FROM skewed UNION ALL SELECT k, -v FROM skewed) u JOIN sides y ON u.k = y.k",
    "SELECT x.v, z.w FROM skewed x JOIN sides y ON x.k = y.k JOIN sides z ON z.k = x.k WHERE y.w < 1000",
]
WHOLE = [  # what must be together stays: outer sides, groups computed where they lie
    "SELECT x.v, y.w FROM skewed x FULL JOIN sides y ON x.k = y.k",
    "SELECT y.w, x.v FROM sides y LEFT JOIN skewed x ON x.k = y.k",
    "SELECT DISTINCT x.v % 100, y.w FROM skewed x JOIN sides y ON x.k = y.k",
    "SELECT k, count(*), median(v) FROM skewed GROUP BY k",
    "SELECT x.k, count(*), sum(y.w) FROM skewed x JOIN sides y ON x.k = y.k GROUP BY x.k",
    "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v, s) FROM skewed",
    "SELECT k FROM skewed EXCEPT ALL SELECT k FROM sides",
]


def said_split(said):
    return any("split in" in t for t in said.values())


def test_a_key_with_half_of_the_rows(data, duck):
    with open_session(data, partitions=2, task_target_bytes=20000, filter_bytes=0) as s:
        for sql in SPLIT:
            said, _ = adapted(s, sql)
            assert said_split(said), (sql, said)
            check(s, duck, sql)
        for sql in WHOLE:
            said, _ = adapted(s, sql)
            assert not said_split(said), (sql, said)
            check(s, duck, sql)


@pytest.mark.parametrize("mode", ["staged", "eager"])
def test_sorted_rows_stay_sorted(data, duck, mode):
    sql = "SELECT k, s FROM facts ORDER BY s DESC, k"
    with open_session(data, mode, task_target_bytes=50000) as s:
        table, _ = s.run(sql)
        assert compare.difference(compare.rows_of(table), compare.rows_of(duck.con.execute(sql).to_arrow_table()), ordered=True) is None


# ---- partial steps that are left out

UNIQUE = [  # each row has a key of its own
    "SELECT k, count(*) AS n, sum(v) AS s FROM facts GROUP BY k",
    "SELECT k, count(*) FILTER (WHERE v > 5), sum(v) FILTER (WHERE v % 2 = 0), avg(v), avg(k::DECIMAL(12, 2)) FILTER (WHERE v > 1), min(s), "
    "max(s) FILTER (WHERE v > 90), arg_min(s, v), bool_or(v > 3), bit_xor(v), count_if(v > 3), any_value(s) FROM facts GROUP BY k",
    "SELECT k, fsum(v), favg(v) FILTER (WHERE v > 3), regr_count(v, k), regr_avgx(nullif(v, 5), k), skewness(v), kurtosis_pop(v) FROM facts GROUP BY k",
    "SELECT nullif(k % 59000, 7), s, count(v), max(v) FROM facts WHERE v < 90 GROUP BY ALL",
    "SELECT DISTINCT k, s FROM facts",
    "SELECT count(DISTINCT k), sum(v), avg(DISTINCT k) FROM facts",
    "SELECT k // 50000 AS g, count(DISTINCT k), sum(v), count(*) FROM facts GROUP BY g",
    "SELECT k, count(*), sum(v) FROM (SELECT k, v FROM facts UNION ALL SELECT k + 100000, v FROM facts) GROUP BY k",
    "SELECT k FROM facts GROUP BY k HAVING sum(v) > 90 ORDER BY k LIMIT 20",
]
REPEATED = [
    GROUPS,
    "SELECT DISTINCT v FROM facts",
    "SELECT k, v, count(*) FROM facts GROUP BY ROLLUP (k, v)",  # a row of it is several groups
    "SELECT count(DISTINCT v), sum(k) FROM facts",
    "SELECT k, var_pop(v), corr(v, k), min(v, 2) FROM facts GROUP BY k",  # what a row alone gives is not written
    "SELECT k, count(*) FROM skewed GROUP BY k",  # half of the rows are one group
]


def of_rows(session, sql):
    """Tasks that left their partial step out, of how many tasks of such stages."""
    stages = [s["measured"] for s in json.loads(session.explain(sql, True, True))["stages"]]
    said = [m for m in stages if "rows move as they are" in m.get("adapted", "")]
    assert all((m["of_rows"] > 0) == (m in said) for m in stages)
    return sum(m["of_rows"] for m in said), sum(m["tasks"] for m in said)


@pytest.mark.parametrize("mode, numbers", [("staged", (1, 7, 64)), ("eager", (2, 64))])
def test_rows_of_many_keys_are_grouped_once(data, duck, mode, numbers):
    of_join = "SELECT f.k, y.w, count(*) FROM facts f JOIN (SELECT v, max(k) AS w FROM facts GROUP BY v) y ON f.v = y.v GROUP BY ALL"
    with open_session(data, mode) as s:
        for partitions in numbers:
            s.run(f"SET partitions = {partitions}")
            for i, sql in enumerate([*UNIQUE, of_join] if partitions == 64 else UNIQUE):
                if i % len(numbers) == numbers.index(partitions) or sql == of_join:
                    n, tasks = of_rows(s, sql)
                    assert 0 < n < tasks, (sql, n, tasks)
                check(s, duck, sql)
        for sql in REPEATED:
            assert of_rows(s, sql) == (0, 0), sql
            check(s, duck, sql)


def test_rows_are_grouped_first_where_nothing_is_adapted(data, duck):
    with open_session(data, adaptive="false") as s:
        for sql in UNIQUE:
            assert of_rows(s, sql) == (0, 0), sql


def test_keys_that_repeat_later_are_seen(data, duck, tmp_path):
    """The first files have keys of their own, the others one key for all: one task in sixteen tells, so that the last ones group again."""
    for i in range(80):
        key = f"{i * 5000} + i" if i < 20 else "7"
        duck.execute(f"COPY (SELECT {key} AS k, (hash(i) % 1000000007)::BIGINT AS v FROM range({i * 5000}, {i * 5000 + 5000}) t(i)) "
                     f"TO '{tmp_path}/t-{i:02}.parquet'")
    view = f"CREATE OR REPLACE VIEW later AS SELECT * FROM '{tmp_path}/t-*.parquet'"
    duck.execute(view)
    sql = "SELECT k, count(*), sum(v) FROM later GROUP BY k"
    with open_session(data, split_bytes=1) as s:
        s.run(view)
        n, tasks = of_rows(s, sql)
        assert tasks > 64 and 30 < n < tasks - 12, (n, tasks)  # all but 7 if nobody looked again
        check(s, duck, sql)


# ---- hash joins that become broadcast joins: by the estimates no side is below broadcast_bytes, one of them turns out to be

IN_PLACE = {"broadcast_bytes": 20000, "partitions": 5}
KEYS = "(SELECT k, w FROM sides WHERE w % 1000 = 7)"  # 9 rows, which one row of facts each has
GROUPED = "(SELECT k % 97 AS v, w FROM sides WHERE w % 333 = 3)"  # 78 rows, each with many rows of facts
JOINED = [
    f"SELECT f.k, f.s, y.w FROM facts f JOIN {KEYS} y ON f.k = y.k",
    f"SELECT f.k, f.s, y.w FROM {KEYS} y JOIN facts f ON f.k = y.k",
    f"SELECT f.s, count(*), sum(y.w) FROM facts f JOIN {GROUPED} y ON f.v = y.v GROUP BY f.s",
    f"SELECT f.k, y.w FROM facts f JOIN {GROUPED} y ON f.v = y.v ORDER BY f.k, y.w LIMIT 7",
    "SELECT f.k % 7, count(*), max(f.s) FROM facts f JOIN (SELECT v, max(k) AS a FROM facts GROUP BY v) y ON f.v = y.v WHERE f.k > y.a - 9000 GROUP BY f.k % 7",
    f"SELECT f.k, f.s FROM facts f SEMI JOIN {KEYS} y ON f.k = y.k",
    f"SELECT f.k, y.w FROM facts f JOIN {KEYS} y ON f.k + 1 = y.k + 1 AND f.v < y.w",
]
HASHED = [  # rows without a partner show, or the partitions are what groups are made of
    f"SELECT y.w, f.s FROM {KEYS} y LEFT JOIN facts f ON f.k = y.k",
    f"SELECT f.s, y.w FROM facts f FULL JOIN {KEYS} y ON f.k = y.k",
    f"SELECT y.k, y.w FROM {KEYS} y ANTI JOIN facts f ON f.k = y.k",
    f"SELECT f.v, median(y.w) FROM facts f JOIN {GROUPED} y ON f.v = y.v GROUP BY f.v",
    f"SELECT f.k, y.w FROM facts f JOIN {GROUPED} y ON f.v = y.v ORDER BY f.k, y.w",  # kept for a sort by ranges, read task by task
    f"SELECT f.k, f.v, rank() OVER (PARTITION BY f.v ORDER BY f.k, y.w) FROM facts f JOIN {GROUPED} y ON f.v = y.v",
    "SELECT f.k, y.w FROM facts f JOIN sides y ON f.k = y.k",  # both sides are large
]


def said_in_place(said):
    return [t for t in said.values() if t.startswith("broadcast join")]


@pytest.mark.parametrize("mode", ["staged", "eager"])
def test_a_side_that_turns_out_small_is_broadcast(data, duck, mode):
    with open_session(data, mode, **IN_PLACE) as s:
        for sql in JOINED:
            said, tasks = adapted(s, sql)
            assert len(said_in_place(said)) == 1, (sql, said)
            inside = next(i for i, t in said.items() if t.startswith("runs in stage"))
            assert tasks[inside] == 0
            check(s, duck, sql)
        for sql in HASHED:
            said, _ = adapted(s, sql)
            assert not said_in_place(said), (sql, said)
            check(s, duck, sql)


def test_joins_in_place_in_passes(data, duck):
    """What does not fit into memory at once, simulated: each pass has a part of the join's keys, of the rows made in place and of the other side."""
    with open_session(data, **IN_PLACE) as s:
        for sql in JOINED:
            rows = []
            for passes in (0, 3):
                s.set("task_passes", passes)
                stages = [st["measured"] for st in json.loads(s.explain(sql, True, True))["stages"]]
                rows += [m["rows_in"] for m in stages if m.get("adapted", "").startswith("broadcast join")]
            assert rows[1] > rows[0], sql  # the other side is read in each of them
            check(s, duck, sql)


def test_joins_follow_each_other_in_place(data, duck):
    sql = f"SELECT f.k, y.w, z.w FROM facts f JOIN {GROUPED} y ON f.v = y.v JOIN {KEYS} z ON f.k = z.k"
    star = f"SELECT f.s, count(*), sum(y.w + z.w) FROM facts f JOIN {GROUPED} y ON f.v = y.v JOIN {GROUPED} z ON f.k % 97 = z.v + 1 GROUP BY f.s"
    with open_session(data, **IN_PLACE) as s:
        for q in (sql, star):
            said, _ = adapted(s, q)
            assert len(said_in_place(said)) == 2, (q, said)
            check(s, duck, q)


def test_a_side_made_by_chance_is_made_once(data):
    """Where the small side is computed in the join's own stage, each task would draw its own numbers: one row of it would show several."""
    sql = ("SELECT f.g FROM (SELECT v, v * 2 AS g FROM facts) f JOIN (SELECT k % 97 AS v, {} AS r FROM sides WHERE w % 333 = 3 GROUP BY 1) d "
           "ON f.v = d.v GROUP BY f.g HAVING min(d.r) <> max(d.r)")
    for settings in (IN_PLACE, {"broadcast_bytes": 0, "partitions": 2, "task_target_bytes": 1000}):
        with open_session(data, **settings) as s:
            assert len(said_in_place(adapted(s, sql.format("min(w)"))[0])) == (settings is IN_PLACE)
            for chance in ("random()", "any_value(w)", "list(w)[1]"):
                assert chance.startswith("list") or not said_in_place(adapted(s, sql.format(chance))[0])  # a list has a stage of its own
                assert s.run(sql.format(chance))[0].num_rows == 0, chance


def shuffled(session, sql):
    return sum(s["measured"]["bytes_out"] for s in json.loads(session.explain(sql, True, True))["stages"] if s["output"] == "HASH")


def test_less_is_shuffled(data):
    sql = f"SELECT f.k % 7, count(*), sum(y.w), max(f.s) FROM facts f JOIN {GROUPED} y ON f.v = y.v GROUP BY f.k % 7"
    with open_session(data, **IN_PLACE) as s:
        after = shuffled(s, sql)
        text = s.explain(sql, True, False)
        assert re.search(r"stage \d+: broadcast join: the other side of stage \d+ has [\d.]+ \w+, each task reads all of it", text)
        assert re.search(r"stage \d+: runs in stage \d+", text)
        assert re.search(r"input\(\d\) <- BROADCAST", text)  # the stages are shown as they ran
    with open_session(data, adaptive="false", **IN_PLACE) as s:
        assert shuffled(s, sql) > 20 * after
    with open_session(data, broadcast_bytes=0, partitions=5) as s:
        assert not said_in_place(adapted(s, sql)[0])
