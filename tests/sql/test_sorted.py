# SPDX-License-Identifier: Apache-2.0
"""Scans of files that lie in the order of a column: what is joined, grouped or windowed by it changes no place, the answers are DuckDB's,
and files that only seem to be in order (NULLs, values that go back, other types) are shuffled as ever."""
import json

import pytest

import brantlib
import compare
import queries

SETTINGS = {"broadcast_bytes": 0, "inline_bytes": 0, "sort_one_task_rows": 0, "partitions": 3, "split_bytes": 30000}

# name: (one row: columns over i, rows a file, first i of each file)
FILES = {
    # one row a key, negative ones too
    "head": ("(i - 3000)::BIGINT AS k, i % 11 AS g, 'h' || i % 5 AS s", [2500 * f for f in range(5)], 2500),
    # three rows a key: keys lie across row groups and files; some keys of head are missing, others are only here
    "lines": ("(i // 3 - 2000)::INTEGER AS k, i % 7 AS v, DATE '2000-01-01' + (i // 3000)::INTEGER AS day", [4001 * f for f in range(9)], 4001),
    # as lines, but of less of the range of keys: all of it would fall to few tasks
    "narrow": ("(i // 40)::BIGINT AS k, i AS w", [3000 * f for f in range(8)], 3000),
    "days": ("DATE '2000-01-01' + (i // 3500)::INTEGER AS day, i AS n", [4000 * f for f in range(8)], 4000),
    "back": ("(CASE WHEN i = 30000 THEN 1 ELSE i END)::BIGINT AS k, i AS v", [4000 * f for f in range(8)], 4000),
    "holes": ("(CASE WHEN i = 9000 THEN NULL ELSE i // 2 END)::BIGINT AS k, i AS v", [4000 * f for f in range(8)], 4000),
    # one value has a third of the rows, which may not end in one task
    "heavy": ("(CASE WHEN i BETWEEN 10000 AND 20000 THEN 10000 ELSE i END)::BIGINT AS k, i AS v", [4000 * f for f in range(8)], 4000),
    "exact": ("(i / 4)::DECIMAL(12,2) AS k, i AS v", [4000 * f for f in range(8)], 4000),
}

# name, kinds of exchanges (H hash, S single, B broadcast, F forward), query; lines' files are in the order of k and of day: k is the first
QUERIES = [
    ("group by", "", "SELECT k, sum(v), count(*) FROM lines GROUP BY k"),
    ("group by more", "", "SELECT k, v, count(*) FROM lines GROUP BY k, v"),
    ("group by, then all", "S", "SELECT count(*), sum(s), max(s) FROM (SELECT k, sum(v) AS s FROM lines GROUP BY k)"),
    ("whole aggregates", "", "SELECT k, median(v), list(v ORDER BY v) FROM lines GROUP BY k"),
    ("count distinct", "", "SELECT k, count(DISTINCT v) FROM lines GROUP BY k"),
    ("distinct", "", "SELECT DISTINCT k, v FROM lines WHERE v > 2"),
    ("window", "", "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v), sum(v) OVER (PARTITION BY k, v) FROM lines"),
    ("grouping sets below a key", "", "SELECT k, v, count(*) FROM lines GROUP BY GROUPING SETS ((k), (k, v))"),
    ("another key", "H", "SELECT v, count(*) FROM lines GROUP BY v"),
    ("having", "", "SELECT k FROM lines GROUP BY k HAVING sum(v) > 12"),
    ("join", "", "SELECT h.k, g, v FROM head h JOIN lines l ON h.k = l.k"),
    ("join, more conditions", "", "SELECT h.k, g, v FROM head h JOIN lines l ON h.k = l.k AND h.g <= l.v AND h.g + 1 <> l.v"),
    ("two keys", "", "SELECT h.k, g, v FROM head h JOIN lines l ON h.g = l.v AND h.k = l.k"),
    ("null-safe", "", "SELECT h.k, g, v FROM head h JOIN lines l ON h.k IS NOT DISTINCT FROM l.k"),
    ("left", "", "SELECT h.k, g, v FROM head h LEFT JOIN lines l ON h.k = l.k"),
    ("right", "", "SELECT h.k, l.k, g, v FROM head h RIGHT JOIN lines l ON h.k = l.k"),
    ("full", "", "SELECT h.k, l.k, g, v FROM head h FULL JOIN lines l ON h.k = l.k"),
    ("semi", "", "SELECT * FROM head h SEMI JOIN lines l ON h.k = l.k"),
    ("anti", "", "SELECT * FROM head h ANTI JOIN lines l ON h.k = l.k"),
    ("anti, the other way", "", "SELECT * FROM lines l ANTI JOIN head h ON h.k = l.k AND h.g < l.v"),
    ("itself", "", "SELECT a.k, a.v, b.v FROM lines a JOIN lines b ON a.k = b.k AND a.v < b.v"),
    ("three", "", "SELECT h.k, l.v, m.v FROM head h JOIN lines l ON h.k = l.k JOIN lines m ON l.k = m.k WHERE m.v = 3"),
    ("grouped after it", "", "SELECT l.k, max(g), sum(v) FROM head h JOIN lines l ON h.k = l.k GROUP BY l.k"),
    ("grouped by a kept key", "", "SELECT h.k, count(v) FROM head h LEFT JOIN lines l ON h.k = l.k GROUP BY h.k"),
    ("a lost key moves", "H", "SELECT l.k, count(*) FROM head h LEFT JOIN lines l ON h.k = l.k GROUP BY l.k"),
    ("after a full join", "H", "SELECT h.k, count(*) FROM head h FULL JOIN lines l ON h.k = l.k GROUP BY h.k"),
    ("joined with groups", "", "SELECT h.k, g, n FROM head h JOIN (SELECT k, count(*) AS n FROM lines GROUP BY k) l ON h.k = l.k"),
    ("left, with groups", "", "SELECT h.k, g, n FROM head h LEFT JOIN (SELECT k, sum(v) AS n FROM lines GROUP BY k HAVING sum(v) > 9) l ON h.k = l.k"),
    ("no row groups left of the larger", "", "SELECT h.k, g, v FROM head h LEFT JOIN (SELECT * FROM lines WHERE v > 100) l ON h.k = l.k"),
    ("few row groups left", "", "SELECT h.k, g, v FROM head h FULL JOIN (SELECT * FROM lines WHERE k BETWEEN 100 AND 900) l ON h.k = l.k"),
    ("a condition on the key", "", "SELECT h.k, g, v FROM head h JOIN lines l ON h.k = l.k WHERE h.k > 1500"),
    ("another type", "", "SELECT h.k, v FROM (SELECT k::BIGINT AS k, v FROM lines) l JOIN head h ON h.k = l.k"),
    ("a computed key moves", "HH", "SELECT h.k, v FROM head h JOIN lines l ON h.k = l.k + 1"),
    ("another range of keys", None, "SELECT h.k, w, g FROM head h LEFT JOIN narrow n ON h.k = n.k"),
    ("dates", "", "SELECT day, count(*), sum(n) FROM days GROUP BY day"),
    ("dates joined", "", "SELECT a.day, a.n, b.n FROM days a JOIN days b ON a.day = b.day WHERE a.n % 1000 = 1 AND b.n % 1000 = 3"),
    ("values that go back", "H", "SELECT k, count(*) FROM back GROUP BY k"),
    ("NULLs", "H", "SELECT k, count(*) FROM holes GROUP BY k"),
    ("NULLs joined", "HH", "SELECT h.k, v FROM head h FULL JOIN holes o ON h.k IS NOT DISTINCT FROM o.k"),
    ("a heavy value", "H", "SELECT k, count(*) FROM heavy GROUP BY k"),
    ("a heavy value joined", "HH", "SELECT h.k, v FROM head h JOIN heavy y ON h.k = y.k"),
    ("decimals", "H", "SELECT k, count(*) FROM exact GROUP BY k"),
    ("read twice", None,
     "WITH x AS MATERIALIZED (SELECT k, v FROM lines) SELECT a.k, n, v FROM x a JOIN (SELECT k, count(*) AS n FROM x GROUP BY k) b ON a.k = b.k"),
    ("correlated", None, "SELECT k, g FROM head h WHERE g < (SELECT avg(v) FROM lines l WHERE l.k = h.k)"),
    ("exists", None, "SELECT k, g FROM head h WHERE EXISTS (SELECT 1 FROM lines l WHERE l.k = h.k AND l.v > h.g)"),
    ("not in", None, "SELECT k, g FROM head h WHERE g NOT IN (SELECT v FROM lines l WHERE l.k = h.k)"),
    ("union all", None, "SELECT k, count(*) FROM (SELECT k FROM head UNION ALL SELECT k FROM lines) GROUP BY k"),
    ("except", None, "SELECT k FROM head EXCEPT SELECT k FROM lines"),
    ("written out", None, "SELECT k, v FROM lines ORDER BY k, v LIMIT 50"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sorted")
    duck = queries.Duck()
    for name, (columns, starts, rows) in FILES.items():
        for f, first in enumerate(starts):
            duck.execute(f"COPY (SELECT {columns} FROM range({first}, {first + rows}) t(i)) TO '{folder}/{name}-{f}.parquet' (ROW_GROUP_SIZE 2048)")
    return folder


def views(data):
    return [f"CREATE VIEW {t} AS SELECT * FROM '{data}/{t}-*.parquet'" for t in FILES]


@pytest.fixture(scope="module")
def duck(data):
    d = queries.Duck()
    for v in views(data):
        d.execute(v)
    return d


@pytest.fixture(scope="module", params=[(2, "staged"), (3, "eager")], ids=str)
def session(data, request):
    with brantlib.Session(workers=request.param[0], threads=1, distribute="always", mode=request.param[1], settings=SETTINGS) as s:
        for v in views(data):
            s.run(v)
        yield s


def stages_of(session, sql):
    return json.loads(session.explain(sql, False, True))["stages"]


@pytest.mark.parametrize("name, moves, sql", QUERIES, ids=[q[0] for q in QUERIES])
def test_rows_that_lie_together(session, duck, name, moves, sql):
    want = compare.rows_of(duck.con.execute(sql).to_arrow_table())
    got, stats = session.run(sql)
    assert compare.difference(compare.rows_of(got), want, ordered="ORDER BY k" in sql) is None, sql
    assert stats.tasks > (1 if moves != "" or "v > 100" not in sql else 0)
    if moves is not None:
        assert "".join(sorted(s["output"][0] for s in stages_of(session, sql) if s["output"] != "RESULT")) == moves


def test_each_row_is_read_by_one_task(session, duck):
    """Cuts lie in the middle of row groups of the one table or the other: a row is in one task's source all the same."""
    sql = "SELECT count(*), count(h.k), sum(h.k), count(l.k), sum(l.k * v) FROM head h FULL JOIN lines l ON h.k = l.k"
    got, stats = session.run(sql)
    assert compare.rows_of(got) == compare.rows_of(duck.con.execute(sql).to_arrow_table())
    assert stats.tasks > 3


def test_a_join_that_takes_such_a_stage_in(data, duck):
    """Its other side turns out small: the stage of cut scans becomes part of the join's, which takes their cuts over."""
    sql = "SELECT h.k, v, n FROM head h JOIN lines l ON h.k = l.k JOIN (SELECT g, count(*) AS n FROM head GROUP BY g) c ON c.g = h.g"
    with brantlib.Session(workers=2, threads=1, distribute="always", mode="staged", settings={**SETTINGS, "broadcast_bytes": 3000}) as s:
        for v in views(data):
            s.run(v)
        found = json.loads(s.explain(sql, True, True))["stages"]
        assert any("broadcast join" in (st["measured"].get("adapted", "")) for st in found)
        got, _ = s.run(sql)
        assert compare.difference(compare.rows_of(got), compare.rows_of(duck.con.execute(sql).to_arrow_table()), ordered=False) is None


def test_a_filter_of_another_column_drops_no_task_that_has_its_rows(tmp_path):
    """The last rows of a row group have the first key of the next: they are in the next task, whose row groups know nothing of their y."""
    duck = queries.Duck()
    y = "(8 - i // 20480) * 1000000 + i"
    duck.execute(f"COPY (SELECT (i + 5) // 10 AS k, {y} AS y FROM range(163840) t(i)) TO '{tmp_path}/big.parquet' (ROW_GROUP_SIZE 20480)")
    duck.execute(f"COPY (SELECT {y} AS y, CASE WHEN i % 20480 = 20478 THEN 1 + i // 20480 ELSE 0 END AS q FROM range(163840) t(i)) "
                 f"TO '{tmp_path}/small.parquet'")
    with brantlib.Session(workers=2, threads=1, distribute="always", mode="staged", settings={"inline_bytes": 0}) as s:
        for b in range(1, 8):
            sql = (f"SELECT f.k, count(*), sum(f.y) FROM '{tmp_path}/big.parquet' f JOIN "
                   f"(SELECT * FROM '{tmp_path}/small.parquet' WHERE q = {b}) s ON f.y = s.y GROUP BY f.k")
            assert compare.rows_of(s.run(sql)[0]) == compare.rows_of(duck.con.execute(sql).to_arrow_table()), sql


def test_files_of_another_type(tmp_path):
    """Bounds of decimals say nothing of whole numbers, which they would be rounded to."""
    duck = queries.Duck()
    for f, kind in enumerate(["INTEGER", "DECIMAL(9,1)", "INTEGER"]):
        duck.execute(f"COPY (SELECT (i + {0.5 if f == 1 else 0})::{kind} AS k, i AS v FROM range({f * 6000}, {f * 6000 + 6000}) t(i)) "
                     f"TO '{tmp_path}/{f}.parquet' (ROW_GROUP_SIZE 2048)")
    with brantlib.Session(workers=2, threads=1, distribute="always", settings=SETTINGS) as s:
        sql = f"SELECT k, count(*) FROM '{tmp_path}/*.parquet' GROUP BY k"
        assert [x["output"] for x in stages_of(s, sql)].count("HASH") == 1
        assert compare.difference(compare.rows_of(s.run(sql)[0]), compare.rows_of(duck.con.execute(sql).to_arrow_table()), ordered=False) is None


def test_it_can_be_switched_off(data, duck):
    with brantlib.Session(workers=2, threads=1, distribute="always", settings={**SETTINGS, "sorted_scans": "false"}) as s:
        for v in views(data):
            s.run(v)
        sql = "SELECT h.k, g, v FROM head h JOIN lines l ON h.k = l.k"
        assert sum(x["output"] == "HASH" for x in stages_of(s, sql)) == 2
        got, _ = s.run(sql)
        assert compare.difference(compare.rows_of(got), compare.rows_of(duck.con.execute(sql).to_arrow_table()), ordered=False) is None
