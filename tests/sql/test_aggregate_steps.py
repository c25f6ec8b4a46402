# SPDX-License-Identifier: Apache-2.0
"""Aggregates in two steps, against one-process DuckDB (test_aggregates.py has every aggregate, this the edges of merging): five files, tasks that
see no row or only NULLs, pairs of which half is there, a mean that is large beside the spread, equal values (no variance, in however many
tasks), values beyond squares.
"""
import math

import duckdb
import pytest

import brantlib
import compare

SETTINGS = {"partitions": 3, "inline_bytes": 0, "split_bytes": 1, "TimeZone": "UTC"}
TWO_STEPS = ["count({x})", "count(*)", "count_if({x} > 2)", "countif({x} > 2)", "sum({x})", "min({x})", "max({x})", "bool_and({x} > 1)",
             "bool_or({x} > 1)", "bit_and({i})", "bit_or({i})", "bit_xor({i})", "product({y})", "avg({x})", "mean({x})", "fsum({x})", "kahan_sum({x})",
             "sumkahan({x})", "favg({x})", "arg_min({i}, {u})", "argmin({i}, {u})", "min_by({i}, {u})", "arg_max({i}, {u})", "argmax({i}, {u})",
             "max_by({i}, {u})", "arg_min_null({x}, {u})", "arg_max_null({x}, {u})", "min({x}, 3)", "max({s}, 2)", "var_pop({x})", "var_samp({x})",
             "variance({x})", "stddev({x})", "stddev_pop({x})", "stddev_samp({x})", "sem({x})", "covar_pop({y}, {x})", "covar_samp({y}, {x})", "corr({y}, {x})",
             "regr_count({y}, {x})", "regr_avgx({y}, {x})", "regr_avgy({y}, {x})", "regr_sxx({y}, {x})", "regr_syy({y}, {x})", "regr_sxy({y}, {x})",
             "regr_slope({y}, {x})", "regr_intercept({y}, {x})", "regr_r2({y}, {x})", "skewness({x})", "kurtosis({x})", "kurtosis_pop({x})"]
# g: group; u: different everywhere; x, y: with NULLs of their own; f: the file
DATA = """select i // 40 as f, i % 7 as g, i as u, (i * 37 % 11)::integer as i, 's' || (i * 31 % 97) as s,
  case when i % 5 = 0 or i // 40 = 2 then null else (i * 17 % 23) / 4 end as x,
  case when i % 3 = 0 then null else (i * 13 % 29) * 1.5 + i / 50 end as y from range(200) r(i)"""
SHAPES = {"plain": ("x", "y"), "far": ("x + 1e7", "y - 1e6"), "equal": ("0.5::double", "y"), "other equal": ("x", "0.3::double"),
          "no power": ("0.1::double", "y"),
          "filtered": ("case when f = 4 then x end", "case when f > 2 then y end"), "nulls": ("null::double", "y")}


@pytest.fixture(scope="module", params=["staged", "eager"])
def both(request, tmp_path_factory):
    d = tmp_path_factory.mktemp("aggregates")
    con = duckdb.connect()
    for f in range(5):
        con.execute(f"COPY (SELECT * FROM ({DATA}) WHERE f = {f}) TO '{d}/{f}.parquet'")
    with brantlib.Session(workers=3, threads=1, distribute="always", mode=request.param, settings=SETTINGS) as s:
        for e in (con.execute, s.run):
            e(f"CREATE VIEW t AS SELECT * FROM '{d}/*.parquet'")
        yield s, con


def close(a, b):
    """Digits are gone where the mean is large, here and in DuckDB."""
    return isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-6)


def check(both, calls, keys, rest, far):
    """The calls side by side, each with and without a filter; what differs, by call."""
    session, con = both
    texts = [t for c in calls for t in (c, f"{c} filter (where u % 4 > 0)")]
    sql = f"select {keys}{', '.join(texts)} from t {rest} order by all"
    n = con.execute(f"describe {sql}").fetchall()
    want = con.execute(sql).fetchall()
    table, stats = session.run(sql)
    assert stats.distributed, sql
    got = list(zip(*(c.to_pylist() for c in table.columns)))
    assert len(got) == len(want), sql
    return [f"{texts[i - len(n) + len(texts)]} {rest}: {a[i]} instead of {b[i]}" for a, b in zip(got, want) for i in range(len(n))
            if not compare.same_value(a[i], b[i]) and not (far and close(a[i], b[i]))]


@pytest.mark.parametrize("shape", SHAPES)
def test_of_groups_and_of_all(both, shape):
    x, y = SHAPES[shape]
    calls = [c for c in TWO_STEPS
             if not (shape in ("far", "no power") and c.startswith(("skewness", "kurtosis")))]  # DuckDB keeps sums of powers: no digit is left
    calls = [c.format(x=f"({x})", y=f"({y})", i="i", u="u", s="s") for c in calls]
    wrong = []
    for keys, rest in (("", ""), ("g, ", "group by g"), ("f, ", "group by f"), ("", "where u < 0"), ("", "where u = 41"),
                       ("g, u % 2, ", "group by rollup (g, u % 2)")):
        wrong += check(both, calls, keys, rest, shape == "far")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("call", TWO_STEPS)
def test_in_two_steps(both, call):
    c = call.format(x="x", y="y", i="i", u="u", s="s")
    for sql in (f"select {c} from t", f"select g, {c} from t group by g"):
        assert "partial aggregate" in both[0].explain(sql), sql


@pytest.mark.parametrize("call", ["var_pop", "stddev_samp", "sem", "regr_sxx", "corr", "kurtosis_pop", "skewness"])
def test_out_of_range(both, call):
    two = call.startswith(("regr", "corr"))
    sql = f"select {call}({'y, ' if two else ''}case when u % 2 = 0 then 1e200 else -1e200 end * u) from t"
    with pytest.raises(duckdb.Error, match="out of range"):
        both[1].execute(sql)
    with pytest.raises(brantlib.BrantError, match="out of range"):
        both[0].run(sql)


def test_moments_by_hand(both):
    """What no task gives: fields that are NULL. Such a row is left out, whatever lies under the NULL."""
    fields = ("n", "my", "mx", "syy", "sxx", "sxy")
    good = "{'n': 2, 'my': 1.5, 'mx': 0.5, 'syy': 0.5, 'sxx': 0.5, 'sxy': 0.5}"
    rows = ", ".join("({" + ", ".join(f"'{f}': {'NULL' if f == hole else 7}" for f in fields) + "})" for hole in fields)
    kind = "STRUCT(n BIGINT, my DOUBLE, mx DOUBLE, syy DOUBLE, sxx DOUBLE, sxy DOUBLE)"
    got = both[0].run(f"SELECT __merge_moments(r::{kind}) AS m FROM (VALUES {rows}, ({good}), (NULL)) t(r)")[0].to_pylist()
    assert got == [{"m": {"n": 2, "my": 1.5, "mx": 0.5, "syy": 0.5, "sxx": 0.5, "sxy": 0.5}}]
