# SPDX-License-Identifier: Apache-2.0
"""How many exchanges a query needs, and of which kinds: nothing moves whose rows are together already. Every query also runs, in
three partitions without shortcuts for small inputs, and gives what one-process DuckDB gives.

"H2 S1" are two HASH exchanges and one SINGLE: stages that write so, each counted once however many read it. F is FORWARD (kept
for several readers), B BROADCAST, R RANGE, b the bounds of ranges. FILTER inputs move no rows of their own.
"""
import collections
import json

import duckdb
import pytest

import brantlib
import compare

LETTERS = {"HASH": "H", "SINGLE": "S", "FORWARD": "F", "BROADCAST": "B", "RANGE": "R", "BOUNDS": "b"}
SETTINGS = {"partitions": 3, "broadcast_bytes": 0, "sort_one_task_rows": 0, "split_bytes": 20000}

# name, exchanges, query
QUERIES = [
    # one exchange for what must come together once
    ("group by", "H1", "select k, sum(v) from a group by k"),
    ("group by two", "H1", "select k, g, sum(v) from a group by k, g"),
    ("distinct", "H1", "select distinct k, g from a"),
    ("window", "H1", "select k, v, sum(v) over (partition by k) from a"),
    ("join", "H2", "select a.v, b.w from a join b on a.k = b.k"),
    # group by after join
    ("group by after join on the same key", "H2", "select a.k, sum(w) from a join b on a.k = b.k group by a.k"),
    ("the other side's key is as good", "H2", "select b.k, sum(v) from a join b on a.k = b.k group by b.k"),
    ("more keys than the join's", "H2", "select a.k, g, sum(w) from a join b on a.k = b.k group by a.k, g"),
    ("a key and a constant", "H2", "select a.k, 'x' as c, sum(w) from a join b on a.k = b.k group by a.k, c"),
    ("another key moves again", "H3", "select g, sum(w) from a join b on a.k = b.k group by g"),
    ("a kept side's key", "H2", "select a.k, count(w) from a left join b on a.k = b.k group by a.k"),
    ("a lost side's key moves again", "H3", "select b.k, count(v) from a left join b on a.k = b.k group by b.k"),
    ("full join moves again", "H3", "select a.k, count(*) from a full join b on a.k = b.k group by a.k"),
    ("semi join", "H2", "select k, sum(v) from a semi join b on a.k = b.k group by k"),
    ("anti join", "H2", "select k, sum(v) from a anti join b on a.k = b.k group by k"),
    ("distinct after join", "H2", "select distinct a.k, b.k from a join b on a.k = b.k"),
    ("window after join", "H2", "select a.k, rank() over (partition by a.k order by v, w) from a join b on a.k = b.k"),
    ("median after join", "H2", "select a.k, median(w) from a join b on a.k = b.k group by a.k"),
    ("count distinct after join", "H2", "select a.k, count(distinct w) from a join b on a.k = b.k group by a.k"),
    # joins of what is together
    ("three tables by one key", "H3", "select a.v, b.w, c.x from a join b on a.k = b.k join c on b.k = c.k"),
    ("join of two aggregates", "H2", "select * from (select k, sum(v) s from a group by k) x join (select k, sum(w) t from b group by k) y on x.k = y.k"),
    ("full join of two aggregates", "H2",
     "select * from (select k, sum(v) s from a group by k) x full join (select k, sum(w) t from b group by k) y on x.k = y.k"),
    ("join with an aggregate", "H2", "select a.v, y.t from a join (select k, sum(w) t from b group by k) y on a.k = y.k"),
    ("two keys, hashed by one of them", "H2",
     "select x.k, x.s, y.t from (select k, max(v) s from a group by k) x join (select k, max(w) t from b group by k) y on x.k = y.k and x.s = y.t"),
    ("what HAVING leaves moves once more, and filters the other side", "H3",
     "select a.k, v from a where k in (select k from b group by k having sum(w) > 30)"),
    ("also of a join", "H3", "select a.v, y.t from a join (select k, sum(w) t from b group by k having sum(w) > 30) y on a.k = y.k"),
    ("not where the other side is kept", "H2", "select a.v, y.t from a left join (select k, sum(w) t from b group by k having sum(w) > 30) y on a.k = y.k"),
    ("aggregate of an aggregate", "H1", "select k, s, count(*) from (select k, sum(v) s from a group by k) group by k, s"),
    ("coarser keys move again", "H2", "select k, max(s) from (select k, g, sum(v) s from a group by k, g) group by k"),
    # through other operators
    ("through a filter and a projection", "H1",
     "select k2, s from (select k + 0 as z, k as k2, sum(v) s from a group by k having sum(v) > 10) where s % 2 = 0"),
    ("distinct of a group by", "H1", "select distinct k, s from (select k, sum(v) s from a group by k)"),
    ("window over a group by", "H1", "select k, s, row_number() over (partition by k order by s) from (select k, sum(v) s from a group by k)"),
    ("group by over a window", "H1", "select k, max(r) from (select k, rank() over (partition by k order by v) r from a) group by k"),
    ("two windows by one key", "H1", "select v, rank() over (partition by k order by v), sum(v) over (partition by k, g) from a"),
    ("widened key", "H2", "select z, sum(w) from (select a.i::bigint as z, w from a join b on a.i = b.i) group by z"),
    ("rollup below a fixed key", "H2", "select a.k, g, sum(w) from a join b on a.k = b.k group by grouping sets ((a.k, g), (a.k))"),
    ("count of distinct join keys", "H2 S1", "select count(distinct a.k) from a join b on a.k = b.k"),
    # set operations
    ("union all of aggregates keeps", "H2",
     "select k, sum(s) from (select k, sum(v) s from a group by k union all select k, sum(w) from b group by k) group by k"),
    ("union of distinct", "H2", "select distinct k from a union select distinct k from b"),
    ("except of aggregates", "H2", "select k, max(v) from a group by k except select k, max(w) from b group by k"),
    ("intersect, one side together", "H2", "select k, max(v) from a group by k intersect select k, w from b"),
    ("group by after except", "H2", "select k, g, count(*) from (select k, g from a except select k, h from b) group by k, g"),
    # what several read
    ("a CTE's two readers by one key", "H1", "with x as materialized (select k, g, v from a) select x.v, y.g from x join x y on x.k = y.k"),
    ("a CTE's readers with other keys", "F1 H2", "with x as materialized (select k, g, v from a) select x.v, y.g from x join x y on x.k = y.g"),
    ("a CTE grouped and joined", "H1",
     "with x as materialized (select k, g, v from a) select x.v, y.s from x join (select k, sum(v + g) filter (where g > 1) s, list(v order by v) l "
     "from x group by k) y on x.k = y.k"),
    ("two equal scans", "H1", "select a.v, y.v from a join a y on a.k = y.k where a.g = 1 and y.g = 1"),
    ("two equal subqueries", "H2", "select * from (select k, sum(v) s from a group by k) x join (select k, sum(v) s from a group by k) y on x.k = y.k"),
    # sort
    ("sort by ranges", "F1 R1 S1 b1", "select k, v from a order by k, v"),
    ("window over everything", "B1 F2 R1 S2 b1", "select k, v, rank() over (order by k, v), sum(v) over (order by k, v) from a"),
    ("sort after a window by the same keys", "B1 F2 R1 S2 b1", "select v, row_number() over (order by k, v) r from a order by k, v"),
    ("a total beside each row", "B1 F1 S1", "select v, sum(v) over () from a"),
    ("a total and a window by key", "B1 F1 H1 S1", "select v, sum(v) over (), rank() over (partition by k order by v) from a"),
    ("windows by two keys", "H2", "select v, sum(v) over (partition by k), sum(v) over (partition by g) from a"),
    ("neighbours", "B1 F2 R1 S2 b1", "select v, lag(k) over (order by v), lead(v, 3) over (order by v), ntile(10) over (order by v) from a"),
    ("values before and behind", "B1 F2 R1 S2 b1",
     "select v, last_value(k ignore nulls) over (order by v), sum(k) over (order by v rows between 3 preceding and 1 following) from a"),
    ("a frame of near values", "B1 F1 H1 S1", "select v, sum(k) over (order by v range between 3 preceding and 1 following) from a"),
    ("near values of two reaches", "B1 F1 H1 S1",
     "select v, max(k) over (order by v range between 3 preceding and current row), sum(k) over (order by v range between 1 preceding and 9 following) from a"),
    ("asof without keys", "B1 F2 H3 S3", "select a.v, b.w from a asof join b on a.v >= b.w"),
    ("points in spans", "B1 F1 H2 S1", "select a.v, b.w from a join b on a.v between b.w and b.w + 2"),
    ("few spans for many points", "B1", "select a.v, c.x from a join c on a.v between c.x and c.x + 2"),
    ("full join without equality", "B2 F2 S2", "select count(*), sum(v), sum(w) from (select * from a where v < 500) full join b on v < w - 2900"),
    ("whole aggregates of two columns", "B2 S2", "select median(k), median(v) from a"),
    ("counts of different values of two columns", "H1 S1", "select count(distinct k), count(distinct g), sum(v) from a"),
    ("rounds over an aggregate", "H1 S1",
     "with recursive r(n) as (select 0 union select x.m % 97 from r join (select k, max(v) m from a group by k) x on x.k = r.n) select count(*) from r"),
    ("top n", "S1", "select k, v from a order by v desc, k limit 5"),
    ("group by and top n", "H1 S1", "select k, sum(v) s from a group by k order by s desc, k limit 5"),
    # one task or none
    ("count", "S1", "select count(*), sum(v) from a"),
    ("projection", "", "select k + 1, v from a where g = 2"),
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    d = tmp_path_factory.mktemp("exchanges")
    made = {
        "a": "select i % 97 as k, i % 7 as g, i::int as i, i as v from range(6000) r(i) union all select null, 1, null, -1",
        "b": "select i % 89 as k, i % 5 as h, (i * 3)::int as i, i as w from range(3000) r(i) union all select null, null, null, 7",
        "c": "select i as k, i * i as x from range(60) r(i)",
    }
    statements = []
    for name, sql in made.items():
        duckdb.sql(f"COPY ({sql}) TO '{d}/{name}.parquet' (ROW_GROUP_SIZE 2048)")
        statements.append(f"CREATE VIEW {name} AS SELECT * FROM '{d}/{name}.parquet'")
    return statements


@pytest.fixture(scope="module")
def duck(tables):
    con = duckdb.connect()
    for s in tables:
        con.execute(s)
    return con


@pytest.fixture(scope="module")
def session(tables):
    with brantlib.Session(workers=3, threads=1, distribute="always", settings=SETTINGS) as s:
        for t in tables:
            s.run(t)
        yield s


def exchanges(plan):
    assert plan["whole_query_reason"] is None
    counts = collections.Counter(LETTERS[s["output"]] for s in plan["stages"][:-1])
    return " ".join(f"{k}{n}" for k, n in sorted(counts.items()))


@pytest.mark.parametrize("want, sql", [pytest.param(e, q, id=n) for n, e, q in QUERIES])
def test_exchanges(session, duck, want, sql):
    found = exchanges(json.loads(session.explain(sql, False, True)))
    table, stats = session.run(sql)
    assert stats.distributed
    got = list(zip(*(c.to_pylist() for c in table.columns)))  # names repeat
    diff = compare.difference(got, duck.execute(sql).fetchall(), False)
    assert diff is None, f"{sql}\n{diff}"
    assert found == want, session.explain(sql, False, False)


def test_there_are_enough():
    assert len(QUERIES) >= 40 and len({n for n, _, _ in QUERIES}) == len(QUERIES)
