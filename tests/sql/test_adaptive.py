# SPDX-License-Identifier: Apache-2.0
"""Stages that are planned again with true sizes before they start: what explain --analyze says of it, and right answers."""
import json
import re

import pytest

import brantlib
import compare
import queries

SETTINGS = {"broadcast_bytes": 0, "sort_one_task_rows": 0, "split_bytes": 20000, "partitions": 64}


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
