# SPDX-License-Identifier: Apache-2.0
"""Rewrites at their edges, against one-process DuckDB: empty inputs, one row, all rows equal, NULLs, duplicates, types that compare
equal but hash differently, sums beyond 64 bits and beyond all bits, order inside aggregates, one heavy key. Three workers, no
shortcuts for small inputs. docs/operators.md names these tests by operator.
"""
import itertools

import duckdb
import pytest

import brantlib
import compare

SETTINGS = {"partitions": 3, "broadcast_bytes": 0, "sort_one_task_rows": 0, "split_bytes": 20000, "TimeZone": "UTC"}
TABLES = {
    "many": "select case when i % 9 = 0 then null else i % 23 end as k, i as v, i % 4 as g from range(300) r(i)",
    "few": "select case when i % 5 = 0 then null else i % 31 end as k, i * 10 as v, i % 3 as g from range(60) r(i)",
    "none": "select i as k, i as v, i as g from range(0) r(i)",
    "one": "select 7::bigint as k, 1::bigint as v, 1::bigint as g",
    "same": "select 7::bigint as k, 5::bigint as v, 1::bigint as g from range(40)",
    "nulls": "select null::bigint as k, i as v, i % 2 as g from range(20) r(i)",
}
PAIRS = [(a, b) for a, b in itertools.product(TABLES, TABLES) if (a, b) not in (("few", "few"), ("many", "many"), ("nulls", "few"), ("few", "nulls"))]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    d = tmp_path_factory.mktemp("edges")
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    with brantlib.Session(workers=3, threads=1, distribute="always", settings=SETTINGS) as s:
        for name, sql in TABLES.items():
            con.execute(f"COPY ({sql}) TO '{d}/{name}.parquet'")
        big = "select case when i % 2 = 0 then 42 else i % 1000 end as k, i as v from range(200000) r(i)"
        con.execute(f"COPY ({big}) TO '{d}/heavy.parquet' (ROW_GROUP_SIZE 20000)")
        for name in [*TABLES, "heavy"]:
            view = f"CREATE VIEW {name} AS SELECT * FROM '{d}/{name}.parquet'"
            con.execute(view)
            s.run(view)
        yield s, con, d


def check(both, *queries, ordered=False):
    session, con, _ = both
    wrong = []
    for sql in queries:
        try:
            want = con.execute(sql).fetchall()
        except duckdb.Error as e:
            with pytest.raises(brantlib.BrantError):
                session.run(sql)
                print(f"{sql} should fail: {e}")
            continue
        table, stats = session.run(sql)
        assert stats.distributed, sql
        got = list(zip(*(c.to_pylist() for c in table.columns)))
        diff = compare.difference(got, want, ordered)
        if diff is not None:
            wrong.append(f"{sql}\n   {diff}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", ["join", "left join", "right join", "full join"])
def test_joins(both, kind):
    check(both, *(f"select l.k, l.v, r.k, r.v from {a} l {kind} {b} r on l.k = r.k" for a, b in PAIRS))


@pytest.mark.parametrize("kind", ["semi join", "anti join"])
def test_semi_and_anti_joins(both, kind):
    check(both, *(f"select l.k, l.v from {a} l {kind} {b} r on l.k = r.k" for a, b in PAIRS))


def test_null_matches(both):
    check(both, *(f"select l.k, l.v, r.v from {a} l {kind} {b} r on l.k is not distinct from r.k and l.g = r.g"
                  for a, b in PAIRS[::3] for kind in ("join", "left join", "full join")))


@pytest.mark.parametrize("what", ["k in (select k from {b})", "k not in (select k from {b})", "k not in (select k from {b} where k is not null)",
                                  "exists (select 1 from {b} r where r.k = l.k)", "k in (select r.k from {b} r where r.g = l.g)",
                                  "k > all (select k from {b})", "k = any (select k from {b})"])
def test_marks(both, what):
    check(both, *(f"select k, v, {what.format(b=b)} from {a} l" for a, b in PAIRS[::2]),
          *(f"select k, v from {a} l where {what.format(b=b)}" for a, b in PAIRS[1::2]))


def test_single(both):
    check(both, *(f"select k, v, (select max(v) from {b} r where r.k = l.k) from {a} l" for a, b in PAIRS[::2]),
          *(f"select k, (select v from {b}) from {a}" for a, b in (("many", "one"), ("few", "none"), ("many", "same"))))


@pytest.mark.parametrize("kind", ["right", "full"])
def test_asof_that_keeps_the_right_side(both, kind):
    """DuckDB 1.5.5 never ends one that has one thread, as a task has, where the left side lacks keys of the right one."""
    session, con, _ = both
    con.execute("SET threads = 2")
    check(both, *(f"select l.k, l.v, r.k, r.v from {a} l asof {kind} join (select k, v * 3 as v, g from {b}) r on {on}"
                  for a in ("many", "few", "none", "one") for b in ("few", "one", "none", "nulls", "many") if (a, b) != ("none", "none")
                  for on in ("l.k = r.k and l.v >= r.v", "l.k = r.k and l.g = r.g and l.v < r.v")),
          f"select l.v, count(*), sum(r.v) from few l asof {kind} join many r on l.v > r.v group by l.v",
          f"select r.k, count(*), count(l.v) from none l asof {kind} join heavy r on l.k = r.k and l.v <= r.v group by r.k",
          f"select l.v, r.v from one l asof {kind} join few r on l.v <= r.v where r.v % 3 = 0")


def test_asof_over_sparse_groups(both):
    """Most groups lie in a few of the tasks, many have no row at all on one side."""
    lefts = ("many", "few", "same", "none", "one")
    check(both, *(f"select l.k, l.v, r.v from {a} l asof {kind} join (select k, v * 3 as v, g from {b}) r on l.k = r.k and l.v >= r.v"
                  for a in lefts for b in ("few", "one", "none", "nulls") for kind in ("", "left")),
          "select l.v, r.v from (select k % 200 as k, v from heavy where v % 50 = 1) l asof left join "
          "(select k % 200 as k, v from heavy where v % 997 = 3) r on l.k = r.k and l.v > r.v",
          "select l.v, r.v from many l asof left join few r on l.v >= r.v")


@pytest.mark.parametrize("op", [">=", ">", "<=", "<"])
def test_asof_without_keys(both, op):
    """The best match lies in the same task, in the one before, in one of those before that, or nowhere."""
    check(both, *(f"select l.k, l.v, r.v from {a} l asof {kind} join (select distinct {x} as v from {b}) r on {y} {op} r.v"
                  for i, (a, b) in enumerate(PAIRS) for kind, x, y in [(("", "v * 3", "l.v"), ("left", "k", "l.v"), ("left", "v + 150", "l.k"))[i % 3]]
                  if op in (">=", "<") or i % 3 == 0),
          f"select l.v, r.w from many l asof left join (select distinct on (v) v, v::varchar as w from few) r on l.v {op} r.v + 40",
          f"select count(*), sum(w) from heavy l asof join (select v, v * 2 as w from heavy where v % 1777 = 5) r on l.v {op} r.v",
          f"select count(*), sum(r.v) from heavy l asof left join (select distinct v // 9999 as v from heavy where v < 300) r on l.v {op} r.v",
          f"select l.v, r.s from many l asof join (select distinct v::varchar as s from few) r on l.v::varchar {op} r.s")


@pytest.mark.parametrize("kind", ["join", "left join", "right join", "semi join", "anti join", "full join"])
def test_points_in_spans(both, kind):
    shown = "l.k, l.v" if kind in ("semi join", "anti join") else "l.k, l.v, r.k, r.v"
    conditions = ("l.v between r.v and r.v + 15", "r.v >= l.k - 2 and r.v < l.k + 2", "l.k > r.k and l.k <= r.v and l.g <> r.g")
    check(both, *(f"select {shown} from {a} l {kind} {b} r on {conditions[i % 3]}" for i, (a, b) in enumerate(PAIRS) if kind[0] in "jlr" or i % 4 == 0),
          f"select count(*), sum(l.v) from (select * from heavy where v < 9000) l {kind} "
          f"(select v * 7 as k, v * 7 + v % 40 as v from heavy where v % 5 = 0 and v < 2000) r on l.v between r.k and r.v")


def test_full_joins_without_equality(both):
    conditions = ("l.k < r.k - 20", "l.v > r.v and l.g < r.g", "l.v + r.v < 40 or l.k = r.g", "l.k > r.k + 1000")
    check(both, *(f"select l.k, l.v, r.g, r.v from {a} l full join {b} r on {conditions[i % 4]}" for i, (a, b) in enumerate(PAIRS)),
          *(f"select l.v, r.v from few l full join {b} r on false" for b in ("many", "none", "same")),
          "select count(*), sum(l.v), sum(r.v) from (select * from heavy where v < 3000) l full join few r on l.v < r.v and l.k <> r.g",
          "select count(*), count(a.v), sum(d.v) from many a full join few b on a.v < b.v - 300 full join one d on b.v > d.v and a.k is null")


def test_other_conditions(both):
    check(both, *(f"select {'l.v' if kind in ('semi join', 'anti join') else 'l.v, r.v'} from {a} l {kind} {b} r on l.k < r.k and l.g <> r.g"
                  for a, b in (("few", "one"), ("one", "few"), ("few", "none"), ("none", "few"), ("few", "same"), ("nulls", "few"))
                  for kind in ("join", "left join", "right join", "full join", "semi join", "anti join")))
    check(both, "select l.v from few l semi join few r on l.v < r.v - 400", "select l.v from few l anti join few r on l.v < r.v - 400",
          "select count(*) from many l, few r where l.v between r.v and r.v + 15")


@pytest.mark.parametrize("table", list(TABLES))
def test_aggregates(both, table):
    calls = ("count(*)", "count(k)", "sum(v)", "avg(v)", "min(v)", "max(k)", "count(distinct g)", "sum(distinct v)", "median(v)",
             "list(v order by v)", "string_agg(v::varchar, '+' order by v desc)", "bool_and(v > 3)", "bit_xor(v)", "stddev(v)",
             "count(*) filter (where g = 1)", "sum(v) filter (where k is null)", "quantile_cont(v, 0.3)", "list_sort(list(g))")
    check(both, *(f"select {c} from {table}" for c in calls), *(f"select k, {c} from {table} group by k" for c in calls),
          f"select {', '.join(calls)} from {table}", f"select k, g, grouping(k), sum(v) from {table} group by cube (k, g)",
          f"select g, count(distinct k), count(distinct v), sum(v) from {table} group by rollup (g)")


@pytest.mark.parametrize("table", list(TABLES))
def test_several_distinct_arguments(both, table):
    """Of values that are NULL, all equal, in every task or in one; beside aggregates of all rows, and with conditions of their own."""
    check(both, f"select count(distinct k), count(distinct v), sum(distinct g) from {table}",
          f"select count(distinct k), sum(distinct v % 7), avg(distinct g), count(*), sum(v), avg(v), min(k), count(k) filter (where g = 1) from {table}",
          f"select count(distinct k) filter (where g = 1), count(distinct k) filter (where v > 4), count(distinct k), bool_or(v > 3) from {table}",
          f"select count(distinct k) filter (where g = 1) from {table}",
          f"select g, count(distinct k) filter (where v % 2 = 0), count(*) from {table} group by g",
          f"select count(distinct k::double), count(distinct k::varchar), count(distinct [k, g]), "
          f"count(distinct case when v % 2 = 0 then -0.0 else 0.0 end) from {table}",
          f"select count(distinct k), count(distinct g), median(v), count(distinct (k, g)) from {table}")


@pytest.mark.parametrize("table", list(TABLES))
def test_calls_that_are_dealt(both, table):
    """Calls that must see all values, of several columns, beside others: each column goes to a task of its own."""
    check(both, f"select median(v), median(k), count(*), sum(g), quantile_cont(v, 0.3), min(k) from {table}",
          f"select count(distinct k), sum(distinct v), median(g), list(v order by v), max(v), string_agg(k::varchar, '+' order by v) from {table}",
          f"select count(distinct k) filter (where g = 1), median(v + 1) filter (where k > 3), avg(v), count(distinct g), mad(g), mad(k), mad(v) from {table}",
          f"select median(v), median(k), stddev(k), entropy(g), approx_count_distinct(g), count(*) filter (where k is null) from {table} where v > 5",
          f"select median(x), median(y) from (select k + 1 as x, v * 2 as y from {table} where g < 3)",
          f"select m, n + 1 from (select median(v) as m, median(k) as n, count(*) as c from {table}) where c >= 0",
          f"select count(distinct [k, g]), mode(v order by v), corr(k, v), median(g) from {table}")


def test_calls_that_show_the_order_of_rows_see_one_order(tmp_path):
    """map(list(k), list(v)) pairs values of one row, first(k) and first(v) are of one row, whatever stands beside them and however many threads run."""
    duckdb.sql(f"COPY (SELECT i AS k, 's' || i AS v FROM range(300000) r(i)) TO '{tmp_path}/t.parquet' (ROW_GROUP_SIZE 4096)")
    settings = {**SETTINGS, "inline_bytes": 0}
    with brantlib.Session(workers=2, threads=2, distribute="always", settings=settings) as s:
        for sql in ("SELECT count(*) FILTER (WHERE e.value <> 's' || e.key) FROM (SELECT unnest(map_entries(map(list(k), list(v)))) AS e FROM t)",
                    "SELECT (string_agg(k::VARCHAR, ',') <> string_agg(substr(v, 2), ','))::INTEGER FROM t",
                    "SELECT count(*) FILTER (WHERE v <> 's' || k) FROM (SELECT first(k) AS k, first(v) AS v, median(k) FROM t)",
                    "SELECT count(*) FILTER (WHERE v <> 's' || k) FROM (SELECT any_value(k) AS k, any_value(v) AS v, mad(k), count(DISTINCT v) FROM t)"):
            got, _ = s.run(sql.replace("FROM t", f"FROM '{tmp_path}/t.parquet'"))
            assert compare.rows_of(got) == [(0,)], sql


@pytest.mark.parametrize("table", ["many", "few", "nulls"])
def test_frames_of_any_offset(both, table):
    most = 2 ** 63 - 1
    check(both, *(f"select v, {call} over (order by v {frame}) from {table}" for call in ("sum(k)", "count(*)", "median(k)") for frame in
                  (f"rows between 1 preceding and {most} following", f"groups between 1 preceding and {most} following",
                   f"rows between {most} preceding and {most} following", "rows between -1 preceding and 20 following",
                   "rows between 2000 preceding and -1 following", "range between 2 preceding and 25 preceding",
                   "rows between 40 following and 0 following", "groups between 3 preceding and 9 preceding",
                   "range between 25 preceding and 2 preceding", "rows between 2000 following and 3000 following")))


@pytest.mark.parametrize("table", list(TABLES))
def test_recursion(both, table):
    """What doesn't depend on the rounds is computed before them: first terms, tables that a round joins with, aggregates of them."""
    step = "(select case when v % 3 = 0 then k else v % 37 end as a, max(v % 41) as b from {} group by 1)"
    for b in ("few", "none", "nulls"):
        check(both, f"with recursive r(n, d) as (select k, 0 from {table} union select s.b, d + 1 from r join {step.format(b)} s on s.a = r.n where d < 4) "
                    f"select n, d, count(*) from r group by all")
    check(both, f"with recursive r(n) as (select 1 union all select n + (select count(*) from {table}) + 1 from r where n < 700) select * from r",
          f"with recursive c as materialized (select k, g from {table}), r(n) as (select max(g) from c union select c.k from r join c on c.g = r.n) "
          f"select r.n, c.k from r left join c on c.k = r.n",
          f"with recursive r(n, d) as (select distinct k, 0 from {table} union all select n + 1, d + 1 from r where d < 3 and n not in (select k from few "
          f"where k is not null)) select n, d, count(*) from r group by all",
          f"select v, (with recursive r(n) as (select few.v union select n + 10 from r where n < few.v + (select count(*) from {table})) "
          f"select count(*) from r) from few")


@pytest.mark.parametrize("table", list(TABLES))
def test_rows(both, table):
    check(both, f"select distinct k, g from {table}", f"select distinct on (k) k, max(v) over (partition by k) from {table}",
          *(f"select k, g from {table} {op} select k, g from {b}" for op in ("union", "union all", "except", "except all", "intersect", "intersect all")
            for b in ("few", "none", "same", "nulls")))


@pytest.mark.parametrize("table", list(TABLES))
def test_windows_over_all(both, table):
    order = "over (order by {})"
    check(both, f"select k, v, row_number() over w, sum(v) over w, avg(k) over w, count(k) over w, min(k) over w, lag(v) over w, lead(k, 2, -1) over w, "
                f"ntile(4) over w, first_value(k) over w from {table} window w as (order by k desc nulls first, v)" if table != "same" else
                f"select k, v, row_number() over w, sum(v) over w, lag(v) over w from {table} window w as (order by k rows unbounded preceding)",
          f"select k, rank() {order.format('k')}, dense_rank() {order.format('k')}, percent_rank() {order.format('k')}, cume_dist() {order.format('k')}, "
          f"sum(v) {order.format('k')}, max(k) {order.format('k nulls first')} from {table}",
          f"select v, sum(v) over (), count(*) over (), max(k) over (), rank() over (partition by g order by v) from {table}",
          f"select count(*), sum(r), count(distinct r) from (select row_number() over () as r from {table})")
    if table != "same":  # which of its rows has which number is open
        check(both, f"select k, v, row_number() over (order by k, v) from {table} order by k, v", ordered=True)


@pytest.mark.parametrize("table", [t for t in TABLES if t != "same"])
def test_windows_that_pass_over_nulls(both, table):
    order = "order by v"
    check(both, f"select v, last_value(k ignore nulls) over ({order}), first_value(k ignore nulls) over ({order}), lag(k ignore nulls) over ({order}), "
                f"lead(k, 3 ignore nulls) over ({order}), lag(k, 12, -1 ignore nulls) over ({order}) from {table}",
          f"select v, last_value(k ignore nulls) over ({order} desc rows unbounded preceding), first_value(k ignore nulls) over ({order} rows between "
          f"unbounded preceding and unbounded following), last_value(k ignore nulls) over ({order} rows between unbounded preceding and unbounded following) "
          f"from {table}",
          f"select v, last_value(g ignore nulls) over (order by g), "
          f"first_value(v) over ({order} rows between unbounded preceding and 1 preceding) from {table}",
          f"select v, lag(k, 40 ignore nulls) over ({order}), lead(k, 900, 5 ignore nulls) over ({order}) from {table}")


@pytest.mark.parametrize("table", [t for t in TABLES if t != "same"])
def test_moving_frames(both, table):
    """Rows before and behind that lie in one other task, in several, or in none."""
    def over(frame):
        return f"over (order by v rows between {frame})"
    check(both, f"select v, sum(v) {over('3 preceding and 2 following')}, avg(k) {over('10 preceding and current row')}, "
                f"max(k) {over('5 preceding and 2 preceding')}, count(*) {over('2 following and 5 following')}, min(g) {over('current row and 4 following')}, "
                f"sum(v) {over('700 preceding and 150 following')} from {table}",
          f"select v, list(k) {over('1 preceding and 1 following')}, nth_value(k, 2) {over('1 preceding and current row')}, "
          f"median(v) {over('4 preceding and current row')}, first_value(k ignore nulls) {over('2 preceding and 2 following')}, "
          f"count(distinct g) {over('9 preceding and 1 following')}, "
          f"sum(v) {over('3 preceding and 3 following exclude current row')}, sum(v) filter (where g = 1) {over('6 preceding and 1 preceding')} from {table}",
          f"select v, sum(v) {over('2 preceding and current row')}, row_number() over (order by v), lag(v, 2) over (order by v), sum(v) over (order by v), "
          f"count(*) over (), rank() over (partition by g order by v) from {table}",
          f"select k, v, sum(v) over (order by k desc nulls first, v rows between 3 preceding and 2 following) from {table}",
          f"select k, g, count(*) over (order by k, g rows between 400 preceding and 400 following exclude group), "
          f"sum(g) over (order by g rows between 900 preceding and 900 following exclude ties), count(*) over (order by g) from {table}",
          f"select v, sum(v) over (order by v rows between 3 preceding and 2 following exclude group), "
          f"count(k) over (order by v rows between 2 preceding and 1 preceding exclude ties), row_number() over (order by v) from {table}",
          f"select count(s), sum(s), min(s) from (select sum(1) over (rows between 3 preceding and 2 following) as s from {table})")


# name, key, bounds: near and far ones, of either side, in both directions
RANGES = [("whole", "v", "3 preceding and 2 following"), ("nulls", "k", "2 preceding and 1 following"), ("peers", "g", "current row and current row"),
          ("doubles", "case when v % 7 = 0 then 'nan'::double when v % 5 = 0 then '-inf'::double else v / 4 end", "1.5 preceding and 0.25 following"),
          ("months", "date '2024-01-20' + v::int", "interval 1 month preceding and interval 1 month following"),
          ("down", "v desc", "7 preceding and current row"), ("nulls first", "k desc nulls first", "1 preceding and 3 following"),
          ("behind", "v", "9 preceding and 4 preceding"), ("ahead", "v desc nulls last", "2 following and 20 following"),
          ("far", "v", "100000 preceding and 5 following"), ("decimals", "(k * 0.5)::decimal(9, 2)", "1.25 preceding and 0.5 following"),
          ("days", "date '2024-01-20' + v::int", "interval 3 days preceding and current row"),
          ("hours", "timestamp '2024-03-30 20:00:00' + v * interval 25 minute", "interval 90 minutes preceding and interval 1 hour following"),
          ("clocks", "timestamptz '2024-03-30 20:00:00+00' + v * interval 25 minute", "interval 1 day preceding and interval 2 hours following")]


@pytest.mark.parametrize("name, key, bounds", RANGES, ids=[r[0] for r in RANGES])
def test_frames_of_a_range(both, name, key, bounds):
    """Values before and behind that lie in another task, in all, or in none; equal ones are together, whatever is left out of them."""
    def over(exclude=""):
        return f"over (order by {key} range between {bounds}{exclude})"
    few = RANGES.index((name, key, bounds)) < 5
    check(both, *(f"select v, sum(v) {over()}, count(*) {over()}, min(k) {over()}, avg(v) filter (where g = 1) {over()}, count(distinct g) {over()}, "
                  f"count(*) {over(' exclude current row')}, sum(v) {over(' exclude group')}, count(*) {over(' exclude ties')}, median(v) {over()} "
                  f"from {table}" for table in (TABLES if few else ("many", "nulls"))),
          f"select count(*), sum(c) from (select first_value(v) {over()} is null as n, count(v) {over()} as c from few) where not n")
    if few:
        check(both, f"select v, sum(v) {over()}, count(*) over (), row_number() over (order by v), sum(v) over (order by v rows between 1 preceding and "
                    f"current row), max(v) over (partition by g order by v range between 5 preceding and current row) from many")


@pytest.mark.parametrize("table", list(TABLES))
def test_frames_of_groups(both, table):
    def over(frame, order="k, g desc"):
        return f"over (order by {order} groups between {frame})"
    check(both, f"select v, sum(v) {over('2 preceding and 1 following')}, count(*) {over('current row and 3 following')}, "
                f"max(v) {over('5 preceding and 2 preceding')}, count(distinct g) {over('1 preceding and 1 following', 'g nulls first')} from {table}",
          f"select v, sum(v) {over('1 preceding and 1 following exclude ties')}, count(*) {over('1 preceding and current row exclude group')}, "
          f"count(*) {over('2000 preceding and 2000 following exclude current row')}, rank() over (order by k, g desc) from {table}")
    if table != "same":
        check(both, f"select v, sum(v) over (order by v rows between 1500 preceding and 2 following), "
                    f"count(distinct k) over (order by v desc rows between 40 preceding and 1200 following) from {table}")


@pytest.mark.parametrize("table", list(TABLES))
def test_order(both, table):
    check(both, f"select k, v from {table} order by k nulls first, v desc", f"select k, v from {table} order by k desc, v limit 5 offset 3",
          f"select k, v from {table} order by v offset 17", ordered=True)
    check(both, f"select count(*) from (select * from {table} limit 7)", f"select count(*) from (select * from {table} limit 7 offset 18)",
          f"select count(*), count(distinct v) from (select v from {table} using sample 15 rows)" if table != "same" else "select count(*) from same")


EQUAL_TYPES = [("integer", "bigint"), ("tinyint", "hugeint"), ("bigint", "hugeint"), ("integer", "double"), ("bigint", "decimal(18,3)"),
               ("float", "double"), ("decimal(9,2)", "decimal(18,4)"), ("decimal(9,2)", "double"), ("integer", "varchar"), ("smallint", "float")]


@pytest.mark.parametrize("a, b", EQUAL_TYPES)
def test_types_that_compare_equal(both, a, b):
    left = f"(select (v % 41 - 20)::{a} as x, v from many)"
    right = f"(select (v / 10 - 20)::integer::{b} as x, v from few)"
    check(both, f"select l.x, l.v, r.v from {left} l join {right} r on l.x = r.x", f"select x from {left} union select x from {right}",
          f"select x from {left} except select x from {right}", f"select x from {left} intersect all select x from {right}",
          f"select v, x in (select x from {right}) from {left}", f"select x, count(*) from (select x from {left} union all select x from {right}) group by x",
          f"select l.v from {left} l anti join {right} r on l.x = r.x", f"select l.x, sum(r.v) from {left} l full join {right} r on l.x = r.x group by l.x")


def test_equal_values_of_one_type(both):
    zero = "(select case v % 4 when 0 then '-0'::double when 1 then 0::double when 2 then 'nan'::double else '-nan'::double end as x, v from many)"
    check(both, f"select count(*) from (select distinct x from {zero})", f"select count(*), sum(v) from {zero} group by x",
          f"select count(*) from {zero} l join {zero} r on l.x = r.x", f"select v, rank() over (order by x) from {zero}",
          "select d, count(*) from (select make_date(2020, 1, 1) + (v % 3)::int as d from many) l join (select (make_date(2020, 1, 1) + (v "
          "% 4)::int)::timestamp as t from few) r"
          " on l.d = r.t group by d",
          "select i::varchar is null, count(*) from (select case v % 2 when 0 then interval 30 day else interval 1 month end as i from many) group by i",
          "select count(*) from (select distinct case v % 2 when 0 then interval 24 hour else interval 1 day end as i from many)")


def test_sums_beyond_64_bits(both):
    big = "(9223372036854775807 - k % 3)"
    check(both, f"select sum({big}) from many", f"select g, sum({big}), avg({big}) from many group by g",
          "select sum((k * 1000000000000)::decimal(38, 4)) from many", "select g, sum(123456789012345.67::decimal(17, 2)) from heavy, "
          "(select 1 as g) group by g",
          f"select sum({big}::hugeint * 1000000000) from many", f"select v, sum({big}) over (order by v) from many where k is not null",
          f"select v, sum({big}) over () from many", "select avg(k::hugeint * 10000000000000000000) from many")


def test_sums_beyond_all_bits(both):
    """One process says that it is too much; so do partial sums, wherever they meet."""
    most = "170141183460469231731687303715884105727::hugeint"
    check(both, f"select sum({most}) from many", f"select g, sum({most} // 2) from many group by g",
          "select sum(99999999999999999999999999999999999999::decimal(38, 0)) from many",
          f"select max(s) from (select sum({most}) over (order by v) as s from many)")


def test_one_heavy_key(both):
    """Half of the rows have one key: a sort spreads them over its tasks, and all operators stay right."""
    session, _, _ = both
    check(both, "select k, count(*), sum(v) from heavy group by k", "select count(*), sum(r) from (select rank() over (order by k) as r from heavy)",
          "select count(*) from heavy l join (select distinct k from heavy) r on l.k = r.k",
          "select count(*), max(n) from (select count(*) over (partition by k) as n from heavy)")
    check(both, "select k from heavy order by k", ordered=True)
    session.set("partitions", "8")
    tasks = session.run("select count(*) as n from (select monotonically_increasing_id() >> 36 as task from "
                        "(select k, v, row_number() over (order by k) as r from heavy)) group by task")[0].column("n").to_pylist()
    session.set("partitions", str(SETTINGS["partitions"]))
    assert len(tasks) == 8 and max(tasks) < 0.25 * sum(tasks)  # a key's share at one bound is below two partitions


def test_texts_that_look_like_ours(both):
    """What a stage's SQL is put together by may stand in the user's own texts and names."""
    marks = ["__scan_0__", "__scan_1__", "input(0)", "input(1)", "brant_into_partition(3)", "/* filter 0: */ x /* end of filter */", "/* range of filter 0 */",
             "/* end of filter */", "t.c0", "--", "/*", "'' __scan_0__"]
    for m in marks:
        name = m.replace("''", "'")
        check(both, f"select '{m}' as x, count(*) from many group by 1", f"select k, '{m}' || g as x from many where k::varchar <> '{m}'",
              f"select l.k, '{m}', l.v, r.v from many l join few r on l.k = r.k and l.v::varchar || '{m}' <> r.v::varchar || '{m}' where r.v < 200",
              f"select l.k, l.x, r.v from (select k, g, '{m}' || v as x from many where v::varchar || '{m}' <> '1{m}') l join few r on l.k = r.k "
              f"where r.v = 70",
              f"select \"{name}\", count(*), {{'{m}': max(g)}} from (select k as \"{name}\", g from many) where g::varchar <> '{m}' group by 1",
              f"select v, row_number() over (order by v, '{m}' || k) from few order by v || '{m}'")


def test_every_row_may_be_in_a_sample(both):
    """2,000 of 200,000 rows: each of ten parts has its share (200 ± 80 is beyond five standard deviations), none twice, and another run draws others."""
    session, _, _ = both
    sql = "select v // 20000 as part, count(*), count(distinct v), min(v) from (select v from heavy using sample 2000 rows) group by part order by part"
    runs = [list(zip(*(c.to_pylist() for c in session.run(sql)[0].columns))) for _ in range(2)]
    for rows in runs:
        assert [r[0] for r in rows] == list(range(10)) and sum(r[1] for r in rows) == 2000
        assert all(r[1] == r[2] and 120 < r[1] < 280 for r in rows), rows
    assert runs[0] != runs[1]
