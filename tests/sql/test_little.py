# SPDX-License-Identifier: Apache-2.0
"""inline_bytes: what comes from small files is read by each task that wants all of it, and aggregated where it is read, without a stage of
its own; what is much work, or comes out otherwise each time, stays a stage. Every answer is compared with one-process DuckDB's, with and
without it.
"""
import json

import duckdb
import pytest

import brantlib
import compare

MARK = "read by each task"
# name, stages that are left, parts read by tasks, query
QUERIES = [
    ("join with a small side", 1, 1, "select f.v, d.name from facts f join dims d on f.k = d.k where d.name <> 'n3'"),
    ("two small sides, one through the other", 1, 2, "select f.v, d.name, e.t from facts f join dims d on f.k = d.k join more e on d.g = e.g"),
    ("the same small side twice", 1, 2, "select f.v, d.name, e.name from facts f join dims d on f.k = d.k join dims e on f.g = e.k"),
    ("left join", 1, 1, "select f.v, d.name from facts f left join dims d on f.k = d.k and d.g > 2"),
    ("semi join", 1, 1, "select v from facts where k in (select k from dims where g = 1)"),
    ("not in, with NULLs on the right", 1, 1, "select v from facts where k not in (select k from dims)"),
    ("not in, nothing on the right", 1, 0, "select v from facts where k not in (select k from dims where g > 1000)"),
    ("a scalar subquery", 2, 0, "select v from facts where k = (select max(k) from dims where g = 3)"),
    ("a distinct value", 2, 0, "select v from facts where g = (select distinct g from dims where name = 'n7')"),
    ("aggregate of a join", 3, 1, "select d.name, sum(f.v), count(*) from facts f join dims d on f.k = d.k group by all order by all"),
    ("a small side beside a large one", 2, 1, "select f.v, b.w, d.name from facts f join big b on f.b = b.b join dims d on b.g = d.k where b.w % 7 = 0"),
    ("grouped sums of a small table", 1, 1, "select f.v, t.s from facts f join (select g, sum(k) s from dims group by g) t on f.g = t.g"),
    ("union all of small ones", 3, 0, "select f.v, u.name from facts f join (select k, name from dims union all select g, t from more) u on f.k = u.k"),
    # these stay
    ("a large side", 2, 0, "select f.v, b.w from facts f join big b on f.b = b.b where b.w = 3"),
    ("rows out of rows", 2, 0, "select f.v, x.u from facts f join (select k, unnest(range(g)) u from dims) x on f.k = x.u"),
    ("a product", 2, 1, "select f.v, x.n from facts f join (select d.k, e.t as n from dims d cross join more e where d.g < e.g) x on f.k = x.k"),
    ("which rows a limit takes", 4, 0, "select count(*) from facts f where f.k in (select k from dims where k is not null limit 3)"),
    ("chance", 3, 0, "select count(*) from facts f join (select k, random() r from dims) d on f.k = d.k and r < 0"),
]
ANY_ROWS = ("which rows a limit takes",)


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fold")
    con = duckdb.connect()
    for i in range(3):
        con.execute(f"COPY (SELECT i AS v, i % 50 AS k, i % 9 AS g, i * 7 % 30000 AS b FROM range({i} * 20000, {i + 1} * 20000) t(i)) "
                    f"TO '{folder}/facts-{i}.parquet'")
        con.execute(f"COPY (SELECT i AS b, i % 11 AS w, i % 60 AS g, 'text ' || hash(i) AS s FROM range({i} * 10000, {i + 1} * 10000) t(i)) "
                    f"TO '{folder}/big-{i}.parquet'")
    con.execute(f"COPY (SELECT nullif(i, 13) AS k, i % 10 AS g, 'n' || i AS name FROM range(40) t(i)) TO '{folder}/dims-0.parquet'")
    con.execute(f"COPY (SELECT i AS g, 't' || i AS t FROM range(8) t(i)) TO '{folder}/more-0.parquet'")
    return [f"CREATE VIEW {t} AS SELECT * FROM read_parquet('{folder}/{t}-*.parquet')" for t in ("facts", "big", "dims", "more")]


@pytest.fixture(scope="module")
def duck(views):
    con = duckdb.connect()
    for v in views:
        con.execute(v)
    return con


def open_session(views, mode, **settings):
    s = brantlib.Session(workers=3, threads=1, distribute="always", mode=mode, settings={"partitions": 3, **settings})
    for v in views:
        s.run(v)
    return s


@pytest.fixture(scope="module", params=["staged", "eager"])
def session(views, request):
    with open_session(views, request.param, inline_bytes=20000) as s:
        yield s


@pytest.fixture(scope="module")
def without(views):
    with open_session(views, "staged", inline_bytes=0) as s:
        yield s


def same(session, duck, name, sql):
    rows, _ = session.run(sql)
    want = duck.execute(sql).fetchall()
    if name in ANY_ROWS:
        return
    assert compare.difference(compare.rows_of(rows), want, ordered=False) is None


@pytest.mark.parametrize("name, stages, parts, sql", QUERIES, ids=[q[0] for q in QUERIES])
def test_read_by_each_task(session, duck, name, stages, parts, sql):
    plan = json.loads(session.explain(sql, json=True))
    whys = [s["why"] or "" for s in plan["stages"]]
    assert (len(whys), sum(w.count(MARK) for w in whys)) == (stages, parts), session.explain(sql)
    same(session, duck, name, sql)


@pytest.mark.parametrize("name, stages, parts, sql", QUERIES, ids=[q[0] for q in QUERIES])
def test_without(without, duck, name, stages, parts, sql):
    assert MARK not in without.explain(sql)
    same(without, duck, name, sql)


def test_two_values_are_an_error_in_each_task(session):
    with pytest.raises(brantlib.BrantError, match="(?i)more than one row"):
        session.run("select v from facts where g = (select g from dims where name > 'n3')")


def test_where_all_is_small_all_is_distributed(views):
    """Less than four times inline_bytes are read."""
    with open_session(views, "staged", inline_bytes="32MiB") as s:
        assert MARK not in s.explain(QUERIES[0][3])


def test_passes(views, duck):
    """A task in passes reads its small files in each of them."""
    with open_session(views, "staged", inline_bytes=20000, broadcast_bytes=20000, task_passes=3) as s:
        same(s, duck, "", QUERIES[10][3])
