# SPDX-License-Identifier: Apache-2.0
"""Every aggregate that DuckDB has, on three workers against one process: by groups, over all rows, over none, with FILTER, DISTINCT and ORDER BY
inside, over a frame, and in a PIVOT where some cells have no row. A name that is not in the list fails, so that none is forgotten.
"""
import duckdb
import pytest

import brantlib
import compare
import queries

# name: calls over x (a number), y (another), s (a text), d (a date), b (a condition), o (no two rows have the same)
CALLS = {
    "any_value": ["any_value(x ORDER BY o)"], "approx_count_distinct": ["approx_count_distinct(s)", "approx_count_distinct(x)"],
    "approx_quantile": ["approx_quantile(1, 0.5)"], "approx_top_k": ["approx_top_k(x % 2, 1)"], "arbitrary": ["arbitrary(s ORDER BY o)"],
    "array_agg": ["array_agg(x ORDER BY o DESC)"], "avg": ["avg(x)", "avg(x / 3)", "avg(x::DECIMAL(9,2))", "avg(x::HUGEINT)", "avg(to_days(x::INT))", "avg(d)"],
    "bit_and": ["bit_and(x::INT)"], "bit_or": ["bit_or(x::INT)"], "bit_xor": ["bit_xor(x::INT)", "bit_xor(x::BIT)"],
    "bitstring_agg": ["bitstring_agg(x::INT, 0, 20)"], "bool_and": ["bool_and(b)"], "bool_or": ["bool_or(b)"], "corr": ["corr(x, y)"],
    "count": ["count(*)", "count(x)", "count(DISTINCT s)", "count(DISTINCT (s, x))"], "count_if": ["count_if(b)"], "covar_pop": ["covar_pop(x, y)"],
    "covar_samp": ["covar_samp(x, y)"], "entropy": ["entropy(s)"], "favg": ["favg(x)"], "first": ["first(s ORDER BY o)", "first(x ORDER BY o DESC)"],
    "fsum": ["fsum(x)"], "histogram": ["histogram(s)", "histogram(x, [2, 5])"], "histogram_exact": ["histogram_exact(x, [2, 5])"],
    "kurtosis": ["kurtosis(x)"], "kurtosis_pop": ["kurtosis_pop(x)"], "last": ["last(s ORDER BY o)"],
    "list": ["list(x ORDER BY o)", "list(DISTINCT s ORDER BY s)"], "mad": ["mad(x)", "mad(d)"], "max": ["max(s)", "max(x, 2)", "max(d)"],
    "arg_max": ["arg_max(s, o)", "arg_max(x, o, 3)"], "arg_max_null": ["arg_max_null(x, o)"], "arg_max_nulls_last": ["arg_max_nulls_last(s, o, 2)"],
    "arg_min": ["arg_min(s, o)", "arg_min(x, o, 3)"], "arg_min_null": ["arg_min_null(x, o)"], "arg_min_nulls_last": ["arg_min_nulls_last(s, o, 2)"],
    "mean": ["mean(x)"], "median": ["median(x)", "median(d)", "median(s)"], "min": ["min(s)", "min(x, 2)", "min([x])"], "mode": ["mode(x ORDER BY x)"],
    "product": ["product(1 + x / 100)"], "quantile": ["quantile(x, 0.3)"], "quantile_cont": ["quantile_cont(x, 0.3)", "quantile_cont(x, [0.1, 0.9])"],
    "quantile_disc": ["quantile_disc(s, 0.5)", "percentile_disc(0.25) WITHIN GROUP (ORDER BY x DESC)"],
    "regr_avgx": ["regr_avgx(x, y)"], "regr_avgy": ["regr_avgy(x, y)"], "regr_count": ["regr_count(x, y)"], "regr_intercept": ["regr_intercept(x, y)"],
    "regr_r2": ["regr_r2(x, y)"], "regr_slope": ["regr_slope(x, y)"], "regr_sxx": ["regr_sxx(x, y)"], "regr_sxy": ["regr_sxy(x, y)"],
    "regr_syy": ["regr_syy(x, y)"], "reservoir_quantile": ["reservoir_quantile(1, 0.5)"], "sem": ["sem(x)"], "skewness": ["skewness(x)"],
    "stddev_pop": ["stddev_pop(x)"], "stddev_samp": ["stddev_samp(x)", "stddev_samp(DISTINCT x)"],
    "string_agg": ["string_agg(s, '+' ORDER BY o)", "string_agg(DISTINCT s, '' ORDER BY s DESC)"],
    "sum": ["sum(x)", "sum(x / 3)", "sum(x::DECIMAL(9,2))", "sum(b)", "sum(DISTINCT x)"], "var_pop": ["var_pop(x)"],
    "var_samp": ["var_samp(x)"]
}
OTHER_NAMES = {"argmax": "arg_max", "argmin": "arg_min", "count_star": "count", "countif": "count_if", "group_concat": "string_agg", "kahan_sum": "fsum",
               "listagg": "string_agg", "max_by": "arg_max", "min_by": "arg_min", "stddev": "stddev_samp", "sumkahan": "fsum", "variance": "var_samp",
               "sum_no_overflow": "sum"}  # the last is for DuckDB's own use
MACROS = ["geomean(x + 1)", "wavg(x, y)", "weighted_avg(x, y)"]
WINDOWS = {"cume_dist", "dense_rank", "fill", "first_value", "lag", "last_value", "lead", "nth_value", "ntile", "percent_rank", "rank", "rank_dense",
           "row_number"}
ROWS = ("SELECT i AS o, i % 5 AS g, CASE WHEN i % 9 > 0 THEN i % 7 END AS x, i * i % 11 AS y, CASE WHEN i % 4 > 0 THEN 's' || i % 3 END AS s, "
        "DATE '2024-01-01' + (i % 13)::INT AS d, i % 3 = 0 AS b FROM range(600) t(i) "
        "UNION ALL SELECT 1000 + i, 7, NULL, NULL, NULL, NULL, NULL FROM range(3) t(i)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    d = tmp_path_factory.mktemp("aggregates")
    for k in range(4):
        duckdb.execute(f"COPY (SELECT * FROM ({ROWS}) WHERE o % 4 = {k}) TO '{d}/{k}.parquet'")
    return d


@pytest.fixture(scope="module")
def duck(folder):
    d = queries.Duck()
    d.execute(f"CREATE VIEW t AS SELECT * FROM '{folder}/*.parquet'")
    return d


@pytest.fixture(scope="module")
def session(folder):
    settings = {"partitions": 3, "inline_bytes": 0, "broadcast_bytes": 0, "sort_one_task_rows": 0, "split_bytes": 2000, "TimeZone": "UTC",
                "pivot_filter_threshold": 0}  # else a PIVOT of few values is made of FILTERs
    with brantlib.Session(workers=3, threads=1, distribute="always", mode="staged", settings=settings) as s:
        s.run(f"CREATE VIEW t AS SELECT * FROM '{folder}/*.parquet'")
        yield s


def check(session, duck, *texts):
    for sql in texts:
        want = duck.read(duck.con.execute(sql).to_arrow_table())
        table, stats = session.run(sql)
        got = duck.read(table)
        assert stats.distributed and (got.names, got.types) == (want.names, want.types), sql
        diff = compare.difference(got.rows, want.rows, ordered=False)
        assert diff is None, f"{sql}\n   {diff}"


def test_all_are_here(duck):
    names = {r[0] for r in duck.con.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'").fetchall()}
    assert names - WINDOWS == set(CALLS) | set(OTHER_NAMES)
    assert set(OTHER_NAMES.values()) <= set(CALLS)


@pytest.mark.parametrize("name", [*CALLS, "macros"])
def test_of_groups_and_of_all(session, duck, name):
    """By themselves, as others may keep them from being computed in two steps."""
    calls = ", ".join(CALLS.get(name, MACROS))
    check(session, duck, f"SELECT g, {calls} FROM t GROUP BY g", f"SELECT {calls} FROM t", f"SELECT g, o % 2, {calls} FROM t GROUP BY ROLLUP (g, o % 2)")


ALL = [c for calls in CALLS.values() for c in calls]
CHUNKS = [ALL[i:i + 12] for i in range(0, len(ALL), 12)]


@pytest.mark.parametrize("calls", CHUNKS, ids=[c[0] for c in CHUNKS])
def test_together(session, duck, calls):
    def each(text):
        return ", ".join(text.format(c) for c in calls)
    check(session, duck, f"SELECT {each('{}')} FROM t WHERE o < 0", f"SELECT {each('{}')} FROM t WHERE g = 7",
          f"SELECT g, {each('{} FILTER (WHERE o % 3 = 1)')}, count(DISTINCT o), sum(y) FROM t GROUP BY g",
          f"SELECT {each('{} FILTER (WHERE o < 0)')}, count(*) FROM t")
    calls = [c for c in calls if "ORDER BY" not in c and "DISTINCT" not in c]
    check(session, duck, f"SELECT o, {each('{} OVER (PARTITION BY g ORDER BY o ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING)')} FROM t")


@pytest.mark.parametrize("calls", CHUNKS, ids=[c[0] for c in CHUNKS])
def test_of_no_row_in_a_pivot(session, duck, calls):
    """g = 1 has no row where the column is 1, and so on: what the aggregate gives without any, NULL or 0."""
    calls = [c for c in calls if "WITHIN GROUP" not in c]
    for n in range(0, len(calls), 4):
        using = ", ".join(f"{c} AS v{i}" for i, c in enumerate(calls[n:n + 4]))
        check(session, duck, f"SELECT * FROM (PIVOT (SELECT *, o % 4 AS c FROM t WHERE o % 4 <> g % 4) ON c IN (0, 1, 2, 3, 9) USING {using} GROUP BY g)")
