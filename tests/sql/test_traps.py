# SPDX-License-Identifier: Apache-2.0
"""The known traps of distributing SQL (docs/plan-json.md, its end), a test each: every one was a real bug of some engine. Three workers, answers
against one-process DuckDB, at several numbers of partitions, staged and eager.
"""
import itertools
import json
import os

import duckdb
import pytest

import brantlib
import compare

GIB = 1 << 30
TABLES = {
    # one file each, and several
    "small": (1, "select i % 40 as k, i as v, i % 3 as g from range(60) r(i)"),
    "big": (5, "select case when i % 11 = 0 then null else i % 997 end as k, i as v, i % 7 as g from range(9000) r(i)"),
    "wide": (3, "select i % 500 as k, i as v, i % 5 as g from range(4000) r(i)"),
    # one NULL, in the fourth of six files
    "once": (6, "select case when i = 2100 then null else i % 50 end as k, i as v, i % 3 as g from range(3600) r(i)"),
    "none": (2, "select i as k, i as v, i as g from range(0) r(i)"),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    d = tmp_path_factory.mktemp("traps")
    con, views = duckdb.connect(), []
    for name, (parts, sql) in TABLES.items():
        n = con.execute(f"SELECT count(*) FROM ({sql})").fetchone()[0]
        for p in range(parts):
            con.execute(f"COPY (SELECT * FROM ({sql}) WHERE v BETWEEN {n * p // parts} AND {n * (p + 1) // parts - 1}) TO '{d}/{name}-{p}.parquet'")
        views.append(f"CREATE VIEW {name} AS SELECT * FROM '{d}/{name}-*.parquet'")
        con.execute(views[-1])
    return con, views


@pytest.fixture(scope="module", params=["staged", "eager"])
def both(tables, request):
    con, views = tables
    with brantlib.Session(workers=3, threads=1, distribute="always", mode=request.param, settings={"split_bytes": 4000, "TimeZone": "UTC"}) as s:
        for v in views:
            s.run(v)
        yield s, con


def run(session, sql):
    table, stats = session.run(sql)
    assert stats.distributed, sql
    return compare.rows_of(table), stats


def check(both, *queries, ordered=False, partitions=(3,), **settings):
    session, con = both
    for name, value in settings.items():
        session.set(name, value)
    try:
        for sql, n in itertools.product(queries, partitions):
            session.set("partitions", n)
            diff = compare.difference(run(session, sql)[0], con.execute(sql).fetchall(), ordered)
            assert diff is None, f"{n} partitions: {sql}\n   {diff}"
    finally:
        for name in ("partitions", *settings):
            session.run(f"RESET {name}")


def stages(session, sql):
    return json.loads(session.explain(sql, json=True))["stages"]


def sent_to_all(session, sql):
    """Names of the tables whose rows are broadcast."""
    found = set()
    for s in stages(session, sql):
        if s["output"] == "BROADCAST":
            found |= {f.rsplit("/", 1)[1].split("-")[0] for scan in s["scans"] for f in scan["files"]}
    return found


KEPT = [("small l left join big r", "small"), ("big l right join small r", "small"), ("small l semi join big r", "small"), ("small l anti join big r",
      "small"),
        ("small l full join big r", "small big"), ("big l full join small r", "small big"), ("small l left join once r", "small")]


@pytest.mark.parametrize("tables_of, kept", KEPT)
def test_the_kept_side_is_never_broadcast(both, tables_of, kept):
    """However small it is: each task would give its rows once more."""
    right = "" if "semi" in tables_of or "anti" in tables_of else ", r.v as rv"
    for condition in ("l.k = r.k", "l.k = r.k and l.v < r.v", "l.k is not distinct from r.k"):
        sql = f"select l.k, l.v{right} from {tables_of} on {condition}"
        check(both, sql, partitions=(1, 3), broadcast_bytes=GIB)
        both[0].set("broadcast_bytes", GIB)
        assert not sent_to_all(both[0], sql) & set(kept.split()), sql
    both[0].run("RESET broadcast_bytes")
    for condition in ("l.v < r.v - 8980", "l.k = r.k or l.v = r.v"):  # no equality
        if "full" not in tables_of:
            check(both, f"select l.k, l.v{right} from {tables_of} on {condition}", broadcast_bytes=GIB)


@pytest.mark.parametrize("what", ["k in (select k from big)", "k not in (select k from once)", "exists (select 1 from big b where b.k = s.k and b.v > s.v)",
                                  "v < all (select v from big where v > 50)", "(select max(v) from big b where b.k = s.k) > 100"])
def test_the_kept_side_of_a_mark_or_single_join(both, what):
    check(both, f"select k, v, {what} as m from small s", f"select k, v from small s where {what}", broadcast_bytes=GIB, partitions=(1, 3))
    both[0].set("broadcast_bytes", GIB)
    found = sent_to_all(both[0], f"select k, v, {what} as m from small s")
    both[0].run("RESET broadcast_bytes")
    assert "small" not in found or "=" in what  # a correlated subquery's keys are of the outer side, and may go to all


def test_every_grouping_set(both):
    for sets in ("rollup (g, k % 5)", "cube (g, k % 5)", "grouping sets ((g), (k % 5), ())", "grouping sets ((g, k % 5), (g, k % 5), ())",
                 "rollup (g), cube (k % 5)", "grouping sets ((g), (g, k % 5))"):
        for table in ("big", "none"):
            check(both, f"select g, k % 5, count(*), sum(v), max(k), count(distinct v % 10) from {table} group by {sets}",
                  f"select g, grouping(g), avg(v) from {table} group by {sets}, g",
                  f"select median(v), list(v order by v)[1:3] from {table} group by {sets}",
                  f"select count(*), sum(v) from {table} group by grouping sets ((), ())", partitions=(1, 4))


def test_sides_of_different_numbers_of_parts(both):
    """Files, partitions and tasks of the two sides never agree here: every row meets its partner, wherever that is."""
    l, r = "repartition((select * from big), 5, k)", "repartition((select * from wide), 2, k)"
    for kind in ("join", "left join", "right join", "full join"):
        for a, b in (("big", "wide"), ("wide", "big"), (l, r), (r, l), (l, "wide"), ("(select k, max(v) as v from big group by k)", r)):
            con = both[1]
            plain = f"select count(*), count(l.v), count(r.v), sum(l.v), sum(r.v), sum(l.v * r.v), max(l.k) from {a} l {kind} {b} r on l.k = r.k"
            want = con.execute(plain.replace(l, "big").replace(r, "wide")).fetchall()
            for n in (3, 7):
                both[0].set("partitions", n)
                diff = compare.difference(run(both[0], plain)[0], want, False)
                assert diff is None, f"{n} partitions: {plain}\n   {diff}"
    both[0].run("RESET partitions")


def test_joins_one_after_the_other(both):
    """Two, three joins in one query, over fewer and more partitions than there are workers."""
    check(both, "select a.k, count(*), sum(a.v + b.v + c.v) from small a join wide b on a.k = b.k join once c on b.k = c.k group by a.k",
          "select count(*), sum(c.v) from big a join wide b on a.k = b.k join once c on b.g = c.g and a.v = c.v",
          "select a.v, b.v, c.v, d.v from small a left join wide b on a.k = b.k and b.v < 600 left join once c on b.v = c.v full join small d "
          "on d.v = c.k where a.v < 20 or a.v is null",
          partitions=(1, 2, 4, 5), broadcast_bytes=0)


def test_windows_see_all_of_their_rows(both):
    check(both, "select v, rank() over (partition by g order by v desc), sum(v) over (partition by g), lag(v) over (partition by g order by v) from big",
          "select v, count(*) over (), row_number() over (order by v), sum(v) over (order by v rows between 3 preceding and 2 following) from big",
          "select k, v from big qualify row_number() over (partition by k order by v desc) = 1",
          "select g, v, first_value(v) over (partition by g, k order by v), ntile(3) over (partition by g order by v) from once",
          "select g, s, rank() over (order by s) from (select g, sum(v) as s from big group by g)", partitions=(1, 2, 7), sort_one_task_rows=0)


def test_distinct_and_filter_inside_of_aggregates(both):
    """The same value comes from every file."""
    calls = ("count(distinct k), sum(distinct g), count(*) filter (where g = 2), sum(v) filter (where k is null), "
             "avg(distinct k) filter (where g > 3), count(distinct v % 13)")
    check(both, f"select {calls} from big", f"select g, {calls} from big group by g", f"select {calls} from none", f"select k, {calls} from none group by k",
          "select count(distinct k), count(distinct g), count(distinct v) from big",
          "select g, count(distinct k), count(distinct v % 100) from big group by rollup (g)",
          "select count(distinct (g, k % 3)) from big", "select g, list(distinct k % 4 order by k % 4) from big group by g", partitions=(1, 2, 7))


def test_a_branch_of_a_union_runs_once(both):
    """Not in the tasks of the other branches too: every row is read once."""
    sql = "select 'a' as t, v from big union all select 'b', v from wide union all select 'c', v from once"
    check(both, sql, f"select t, count(*), sum(v) from ({sql}) group by t", f"select count(*) from ({sql})", partitions=(1, 4))
    for q in (sql, f"select t, count(*), sum(v) from ({sql}) group by t"):
        files = [f for s in stages(both[0], q) for scan in s["scans"] for f in scan["files"]]
        assert len(files) == len(set(files)) == 5 + 3 + 6
        analyzed = json.loads(both[0].explain(q, analyze=True, json=True))["stages"]
        assert sum(s["measured"]["rows_in"] for s in analyzed if s["scans"]) == 9000 + 4000 + 3600


def test_not_in_knows_of_a_null_in_any_task(both):
    """A NULL in one file of six makes every answer unknown that is not yes."""
    for b in ("once", "(select * from once where v <> 2100)", "(select * from once where k is null)", "none"):
        check(both, f"select k, v, k not in (select k from {b}) from big where v < 800", f"select count(*) from big where k not in (select k from {b})",
              f"select count(*) from big where not (k in (select k from {b}) or v > 8000)",
              f"select v, k not in (select k from {b} b where b.g = big.g) from big where v < 500", partitions=(1, 3, 7), broadcast_bytes=0)


def test_order_by_is_not_the_order_of_completion(both):
    """The first range's rows take longest."""
    slow = "case when v < 40 then len(list_sort(range(20000 + v))) else v end"
    for order in ("v", "v desc", "g desc, v"):
        check(both, f"select v, g, {slow} as w from big order by {order}", ordered=True, partitions=(2, 7), sort_one_task_rows=0)
        check(both, f"select v, {slow} as w from big order by {order} limit 50 offset 3", ordered=True, partitions=(2, 7), sort_one_task_rows=0)


def test_nothing_constants_and_ranges(both):
    check(both, "select * from big limit 0", "select count(*) from (select * from big limit 0)",
          "select k, count(*) from (select * from big limit 0) group by k",
          "select * from big where false", "select sum(v), count(*) from big where 1 = 2", "select v from big where v > 100000",
          "select a.v from big a join none b on a.k = b.k",
          "select a.v from none a left join big b on a.k = b.k", "select * from big order by v limit 0", "select v, rank() over (order by v) from none",
          "select distinct k from none", "select * from none union all select * from none", "select * from big except select * from big", partitions=(1, 3))
    for sql in ("select * from range(5)", "select sum(range) from range(100000)", "select 42",
                "select * from (values (1, 'a'), (2, null)) t(a, b)", "select 1 where false", "select * from generate_series(3, 1)",
                "select range, count(*) from range(7), none group by all"):
        assert compare.difference(compare.rows_of(both[0].run(sql)[0]), both[1].execute(sql).fetchall(), False) is None, sql
    check(both, "select r.range, b.v from range(3) r join big b on b.k = r.range",
          "select v from big where v in (select range * 7 from range(20))", partitions=(1, 3))


def test_a_met_limit_does_not_drain_its_input(both):
    """Of 9000³ rows: who computes them all is ended after minutes."""
    both[0].set("timeout_ms", 300_000)
    try:
        for sql, rows in (("select a.v, b.v, c.v from big a, big b, big c limit 9", 9),
                          ("select * from (select a.v + b.v + c.v as s from big a, big b, big c) where s % 2 = 1 limit 4 offset 2", 4)):
            assert len(run(both[0], sql)[0]) == rows
    finally:
        both[0].run("RESET timeout_ms")


def test_batches_beyond_16_mib(both):
    """A value of 20 MiB goes through every kind of exchange, and to the caller."""
    long = "(select v, k, g, case when v in (3, 3000, 8999) then repeat('0123456789abcdef', 1310720 + v % 3) || v else 's' || v end as s from big)"
    check(both, f"select g, max(s) from {long} where v % 1000 in (0, 3, 999) group by g", f"select s, v from {long} where v > 8990 order by s, v",
          f"select a.v, b.s from small a join {long} b on a.v = b.v where a.v < 5", f"select max(length(s)), sum(length(s)) from {long}",
          f"select v, lag(s) over (order by v) from {long} where v between 8995 and 8999", partitions=(3,), sort_one_task_rows=0)


def test_a_text_beyond_16_mib(both):
    """DuckDB folds this into a constant of 20 MiB, which no message to a worker holds: the query runs in its caller's process, and no worker dies."""
    sql = "select v, length(case when v < 3 then repeat('0123456789abcdef', 1310720) || v else 's' end) as n from big where v < 6"
    table, stats = both[0].run(sql)
    assert compare.difference(compare.rows_of(table), both[1].execute(sql).fetchall(), False) is None
    assert not stats.distributed and stats.workers_lost == 0
    check(both, "select count(*) from big")


def test_a_tasks_text_beyond_16_mib(both, tmp_path):
    """The text of its stage is shorter. What can't be sent is an error that says so, and every worker goes on."""
    session, con = both
    deep = tmp_path.joinpath(*["d" * 250] * 15)
    deep.mkdir(parents=True)
    con.execute(f"COPY (SELECT 1 AS k) TO '{deep}/file.parquet'")
    for i in range(4600):  # read by each task, so that each has all of their names
        os.link(deep / "file.parquet", deep / f"copy-{i}.parquet")
    con.execute(f"COPY (SELECT hash(i) AS h, i AS k FROM range(1200000) r(i)) TO '{tmp_path}/large.parquet'")
    cases = [
        ("task_passes", 4, 0, "SELECT k, count(*) FROM big GROUP BY k HAVING max(v)::VARCHAR <> repeat('a', 5000000)", "in 4 passes"),
        ("inline_bytes", 2 << 20, 0, f"SELECT sum(h) FROM '{tmp_path}/large.parquet' l JOIN '{deep}/*.parquet' s ON l.k = s.k", "fewer files"),
    ]
    for name, value, usual, sql, said in cases:
        session.set(name, value)
        with pytest.raises(brantlib.BrantError, match="text.*more than the 16777216 of a message") as failed:
            session.run(sql)
        assert said in str(failed.value)
        session.set(name, usual)
        table, stats = session.run("SELECT k, count(*) FROM big GROUP BY k")
        assert table.num_rows == 998 and stats.workers_lost == 0


def test_a_top_n_keeps_its_rows_below_a_join(tmp_path):
    """DuckDB 1.5.5 lets a join's filter below a top-n of its probe side, which then keeps other rows. Here, in stages, and as one task."""
    duck = duckdb.connect(config={"threads": 2, "disabled_optimizers": "join_filter_pushdown"})
    duck.execute(f"copy (select range as k, hash(range) % 1000 as v from range(150000)) to '{tmp_path}/big.parquet'")
    duck.execute(f"copy (select range * 7 + 100000 as k from range(2000)) to '{tmp_path}/small.parquet'")
    top = f"(select k, v from '{tmp_path}/big.parquet' order by v, k limit 3000)"
    texts = [f"select count(*), sum(k) from {top} join '{tmp_path}/small.parquet' using (k)",
             f"select k, v from {top} where k in (from '{tmp_path}/small.parquet') order by all",
             f"with recursive r as (select 1 as i union all select i + 1 from r where i < 3) "
             f"select count(*), sum(k) from r, {top} join '{tmp_path}/small.parquet' using (k)"]
    for how in ({"distribute": "never"}, {"distribute": "always", "mode": "staged"}, {"distribute": "always", "mode": "eager"}):
        with brantlib.Session(workers=3, threads=1, **how) as s:
            for sql in texts:
                assert compare.difference(compare.rows_of(s.run(sql)[0]), duck.execute(sql).fetchall(), False) is None, (how, sql)
