# SPDX-License-Identifier: Apache-2.0
"""DataFrame's methods against DuckDB's own Python over the same rows, through stages on two workers."""

import datetime
import decimal
import math
import shutil

import brant
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from brant import col, lit, when
from brant import functions as f

N = 3000
ROWS = {
    "k": [i % 7 for i in range(N)],
    "g": ["abcde"[i % 5] if i % 11 else None for i in range(N)],
    "x": [(i * 37) % 1000 for i in range(N)],
    "y": [i / 8 if i % 13 else None for i in range(N)],
    "t": [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=i) for i in range(N)],
    "l": [list(range(i % 4)) if i % 9 else None for i in range(N)],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The rows as three Parquet files."""
    at = tmp_path_factory.mktemp("data")
    table = pa.table(ROWS)
    for i in range(3):
        pq.write_table(table.slice(i * 1000, 1000), at / f"{i}.parquet")
    return at


@pytest.fixture(scope="module")
def df(session, data):
    return brant.read_parquet(data, session=session)


@pytest.fixture(scope="module")
def duck(data):
    c = duckdb.connect()
    c.execute(f"create view d as from '{data}/*.parquet'")
    return c


def norm(rows, ordered):
    def one(v):
        if isinstance(v, float):
            return float(f"{v:.9g}")
        if isinstance(v, list):
            return [one(x) for x in v]
        return int(v) if type(v).__name__ == "Decimal" and v == int(v) else v

    out = [tuple(one(v) for v in r.values()) for r in rows]
    return out if ordered else sorted(out, key=repr)


def same(frame, duck, sql, ordered=False):
    want = duck.execute(sql).to_arrow_table()
    got = frame.to_arrow()
    assert got.column_names == want.column_names
    assert norm(got.to_pylist(), ordered) == norm(want.to_pylist(), ordered)


CASES = {
    "select": (lambda d: d.select("x", (col("y") * 2).alias("z"), w=col("g").str.upper()), "select x, y*2 z, upper(g) w from d"),
    "where": (
        lambda d: d.where((col("x") > 500) & (col("g") == "a") | col("y").is_null()),
        "from d where x > 500 and g = 'a' or y is null",
    ),
    "where twice": (lambda d: d.where((col("x") > 900) | (col("x") < 100)).where(col("k") == 3), "from d where (x>900 or x<100) and k=3"),
    "where text": (lambda d: d.where("x > 900 or x < 100").filter("k = 3", g="b"), "from d where (x>900 or x<100) and k=3 and g='b'"),
    "where after select": (lambda d: d.select(x=col("k"), k=col("x")).where(col("x") == 3), "from (select k x, x k from d) where x=3"),
    "with_columns": (
        lambda d: d.with_columns(x=col("x") + 1, z=col("k") * 10).with_column("w", col("z") + col("x")),
        "select k,g,x+1 as x,y,t,l,k*10 z, k*10+x+1 w from d",
    ),
    "with_columns merged": (lambda d: d.with_columns(a=col("x") + 1).with_columns(b=col("k") + 1), "select *, x+1 a, k+1 b from d"),
    "with_columns hidden": (lambda d: d.select(q=col("x"), k="k").with_columns(x=col("k")), "select x q, k, k as x from d"),
    "exclude": (lambda d: d.exclude("L", "t"), "select k,g,x,y from d"),
    "rename": (lambda d: d.rename({"x": "k2", "k": "x"}), "select k as x,g,x as k2,y,t,l from d"),
    "swap": (lambda d: d.rename(x="k", k="x"), "select k as x,g,x as k,y,t,l from d"),
    "distinct": (lambda d: d.select("k", "g").distinct(), "select distinct k,g from d"),
    "distinct on": (lambda d: d.select("k", "g").distinct("k").select("k"), "select distinct k from d"),
    "group_by": (
        lambda d: d.group_by("g").agg(col("x").sum(), n=f.count(), m=col("y").mean(), hi=col("x").max().filter(col("k") > 2)),
        "select g, sum(x)::bigint x, count(*) n, avg(y) m, max(x) filter (k>2) hi from d group by g",
    ),
    "group_by expr": (
        lambda d: d.group_by((col("x") % 3).alias("r"), "k").agg(col("g").count_distinct()),
        "select x%3 r, k, count(distinct g) g from d group by 1,2",
    ),
    "group shortcuts": (lambda d: d.select("k", "x", "y").group_by("k").sum(), "select k, sum(x)::bigint x, sum(y) y from d group by k"),
    "group min": (lambda d: d.select("k", "g", "x").group_by("k").min(), "select k, min(g) g, min(x) x from d group by k"),
    "group count": (lambda d: d.group_by("k").count(), "select k, count(*) count from d group by k"),
    "group dict": (
        lambda d: d.group_by("k").agg({"x": ["min", "max"], "y": "median"}),
        "select k, min(x) x_min, max(x) x_max, median(y) y from d group by k",
    ),
    "group list": (
        lambda d: d.group_by("k").agg(col("x").agg_list().order_by("x", desc=True)),
        "select k, list(x order by x desc) x from d group by k",
    ),
    "group head": (
        lambda d: d.group_by("k").head(2, order_by="t").select("k", "t"),
        "select k, t from d qualify row_number() over (partition by k order by t) <= 2",
    ),
    "agg": (
        lambda d: d.agg(col("x").sum(), col("g").count().alias("n"), s=col("y").stddev()),
        "select sum(x)::bigint x, count(g) n, stddev(y) s from d",
    ),
    "agg empty": (
        lambda d: d.where(col("x") > 5000).agg(n=f.count(), s=col("x").sum()),
        "select count(*) n, sum(x)::bigint s from d where x>5000",
    ),
    "frame sum": (lambda d: d.sum("x", "k"), "select sum(x)::bigint x, sum(k)::bigint k from d"),
    "count": (lambda d: d.count("g", "y"), "select count(g) g, count(y) y from d"),
    "explode": (lambda d: d.select("k", "l").explode("l"), "select k, unnest(case when len(l)>0 then l else [null] end) l from d"),
    "explode drop": (lambda d: d.select("k", "l").explode("l", ignore_empty_and_null=True), "select k, unnest(l) l from d"),
    "explode index": (
        lambda d: d.select("x", "l").explode("l", index_column="i").where("i is null or i = l"),
        "select x, unnest(case when len(l)>0 then l else [null] end) l, unnest(case when len(l)>0 then range(len(l)) else [null] end) i from d",
    ),
    "unpivot": (
        lambda d: d.unpivot("t", ["x", "k"]),
        "select * from (select t, x, k from d) unpivot include nulls (value for variable in (x, k))",
    ),
    "pivot": (
        lambda d: d.pivot("k", "g", "x", "sum", ["a", "b"]),
        "select k, sum(x) filter (g='a')::bigint a, sum(x) filter (g='b')::bigint b from d group by k",
    ),
    "pivot fetched": (
        lambda d: d.where("g < 'c'").pivot(["k"], "g", "x", "count"),
        "select k, count(x) filter (g='a') a, count(x) filter (g='b') b from d where g<'c' group by k",
    ),
    "window": (
        lambda d: d.select(
            "t",
            r=col("x").rank().over("k"),
            s=col("x").sum().over("k", order_by="t", rows=(-2, 0)),
            p=col("x").lag().over("g", order_by="t"),
        ),
        "select t, rank() over (partition by k order by x) r, (sum(x) over (partition by k order by t rows between 2 preceding and current row))::bigint s,"
        " lag(x) over (partition by g order by t) p from d",
    ),
    "window object": (
        lambda d: d.select("t", s=col("x").max().over(brant.Window().partition_by("k").order_by("t").rows_between(None, 0))),
        "select t, max(x) over (partition by k order by t rows unbounded preceding) s from d",
    ),
    "window in where": (
        lambda d: d.where(f.row_number().over("k", order_by="t") == 1).where(col("x") >= 0).select("k", "t"),
        "select k, t from d qualify row_number() over (partition by k order by t) = 1",
    ),
    "range frame": (
        lambda d: d.select("t", s=f.count().over(order_by="t", range=(datetime.timedelta(hours=-5), 0))),
        "select t, count(*) over (order by t range between interval 5 hours preceding and current row) s from d",
    ),
    "join": (
        lambda d: d.join(d.group_by("k").agg(m=col("x").max()), on="k").select("t", "m"),
        "select t, m from d join (select k, max(x) m from d group by k) using (k)",
    ),
    "join left": (
        lambda d: d.select("k", "x").join(d.where("x < 3").select("k", "x"), on=["k", "x"], how="left").select("k", "x"),
        "select l.k, l.x from d l left join (from d where x<3) r on l.k=r.k and l.x=r.x",
    ),
    "join suffix": (
        lambda d: d.select("t", "x").join(d.select("t", x=col("k")), on="t"),
        "select l.t, l.x, r.k as x_right from d l join d r using (t)",
    ),
    "join prefix": (
        lambda d: d.select("t", "x").join(d.select("t", x=col("k")), on="t", prefix="right."),
        'select l.t, l.x, r.k as "right.x" from d l join d r using (t)',
    ),
    "join left_on": (
        lambda d: d.where("x<50")
        .select("t", "k")
        .join(brant.from_pydict({"id": [0, 1, 9], "n": ["z", "o", "n"]}, session=d.session), left_on="k", right_on="id", how="full"),
        "select * from (select t, k from d where x<50) l full join (values (0,'z'),(1,'o'),(9,'n')) r(id,n) on k=id",
    ),
    "join right": (
        lambda d: d.where("k<2 and x<9")
        .select("k", "x")
        .join(brant.from_pydict({"k": [0, 1, 9], "n": ["z", "o", "n"]}, session=d.session), on="k", how="right"),
        "select r.k, x, n from (select k, x from d where k<2 and x<9) l right join (values (0,'z'),(1,'o'),(9,'n')) r(k,n) on l.k=r.k",
    ),
    "join full": (
        lambda d: d.where("k<2 and x<9")
        .select("k", "x")
        .join(brant.from_pydict({"k": [0, 1, 9], "n": ["z", "o", "n"]}, session=d.session), on="k", how="outer"),
        "select k, x, n from (select k, x from d where k<2 and x<9) l full join (values (0,'z'),(1,'o'),(9,'n')) r(k,n) using (k)",
    ),
    "semi": (
        lambda d: d.join(d.where("x<5").select("k"), on="k", how="semi").select("t"),
        "select t from d where k in (select k from d where x<5)",
    ),
    "anti": (
        lambda d: d.join(d.where("x<3").select("g"), on="g", how="anti").select("t"),
        "select t from d where not exists (select 1 from d e where e.x<3 and e.g=d.g)",
    ),
    "null equals null": (
        lambda d: d.select("g", "t").join(d.where("x<3").select("g").distinct(), on="g", null_equals_null=True).select("t"),
        "select t from d where exists (select 1 from d e where e.x<3 and e.g is not distinct from d.g)",
    ),
    "cross": (
        lambda d: d.select("k").distinct().cross_join(d.select("g").distinct()),
        "select * from (select distinct k from d), (select distinct g from d)",
    ),
    "expression keys": (
        lambda d: d.select("x", "t").where("x<9").join(d.select(z="x").distinct(), left_on=col("x") * 2, right_on="z"),
        "select l.x, l.t, r.z from (from d where x<9) l join (select distinct x z from d) r on l.x*2=r.z",
    ),
    "union": (lambda d: d.select("k").union(d.select("x").limit(0)), "select distinct k from d"),
    "concat": (
        lambda d: d.select("k", "x").concat(d.where("x<10").select("k", "x")),
        "select k,x from d union all select k,x from d where x<10",
    ),
    "by name": (
        lambda d: d.select("k", "x").union_all_by_name(d.select("x", "g")),
        "select k,x from d union all by name select x,g from d",
    ),
    "intersect": (lambda d: d.select("k").intersect(d.where("k<3").select("k")), "select distinct k from d where k<3"),
    "except": (lambda d: d.select("k").except_(d.where("k<3").select("k")), "select distinct k from d where k>=3"),
    "except all": (lambda d: d.select("k").except_all(d.where("k<3").select("k")), "select k from d where k>=3"),
    "sort limit": (
        lambda d: d.select("k", "x", "t").sort("x", "t", desc=[True, False]).limit(20),
        "select k,x,t from d order by x desc, t limit 20",
    ),
    "sort then compute": (
        lambda d: d.sort(-col("x"), "t").select(x=col("k"), k=col("x")),
        "select k as x, x as k from d order by d.x desc, t",
    ),
    "sort nulls": (
        lambda d: d.select("y", "t").sort(col("y").desc(nulls_first=True), "t").offset(5).limit(300),
        "select y,t from d order by y desc nulls first, t limit 300 offset 5",
    ),
    "sort group": (
        lambda d: d.group_by("k").agg(s=col("x").sum()).sort("s", desc=True),
        "select k, sum(x)::bigint s from d group by k order by s desc",
    ),
    "offsets": (
        lambda d: d.sort("t").limit(100).offset(10).limit(50).offset(5).select("t"),
        "select t from d order by t limit 45 offset 15",
    ),
    "slice": (lambda d: d.sort("t")[10:15].select("t"), "select t from d order by t limit 5 offset 10"),
    "limit then where": (
        lambda d: d.sort("t").limit(10).where("x > 100").select("t", "x"),
        "select t,x from (from d order by t limit 10) where x>100 order by t",
    ),
    "drop_null": (lambda d: d.drop_null("g", "y").select("t"), "select t from d where g is not null and y is not null"),
    "fill_null": (lambda d: d.select("g", "y").fill_null(0).fill_null("none", "g"), "select coalesce(g,'none') g, coalesce(y,0) y from d"),
    "when": (
        lambda d: d.select("t", c=when(col("x") < 100, "low").when(col("x") < 500).then("mid").otherwise(None)),
        "select t, case when x<100 then 'low' when x<500 then 'mid' end c from d",
    ),
    "sum of columns": (lambda d: d.select(z=sum([col("k"), col("x")]) + lit(1)), "select k+x+1 z from d"),
    "summarize": (
        lambda d: d.select("k", "g").summarize().select("column_name", "min", "max", "count"),
        "select column_name, min, max, count from (summarize select k, g from d)",
    ),
    "asof": (
        lambda d: d.select("t", "k").join_asof(d.where("x < 20").select("t", "k", q="x"), on="t", by="k"),
        "select l.t, l.k, q from d l asof left join (select t, k, x q from d where x<20) r on l.k=r.k and l.t>=r.t",
    ),
    "asof forward": (
        lambda d: d.select("t").join_asof(
            d.where("x < 20").select("t", q="x"), on="t", strategy="forward", how="inner", allow_exact_matches=False
        ),
        "select l.t, q from d l asof join (select t, x q from d where x<20) r on l.t<r.t",
    ),
    "asof nearest": (
        lambda d: d.select("x", "k").join_asof(d.where("x % 17 = 3").select("k", z="x", q="g"), left_on="x", right_on="z", by="k", strategy="nearest"),
        """select x, k, s.z, s.q from (select x, k, (select {'z': r.x, 'q': r.g} from d r where r.x % 17 = 3 and r.k = o.k
           ORDER BY abs(r.x - o.x), r.x limit 1) s from d o)""",
    ),
    "asof nearest inner": (
        lambda d: d.select("t").join_asof(
            d.where("x < 20 and x > 5").select("t", q="x"), on="t", strategy="nearest", how="inner", allow_exact_matches=False
        ),
        """select t, (select x from d r where x < 20 and x > 5 and r.t <> o.t
                      ORDER BY case when r.t > o.t then r.t - o.t else o.t - r.t end, r.t limit 1) q from d o where t is not null""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_duckdb(df, duck, name):
    build, sql = CASES[name]
    same(build(df), duck, sql, "order by" in sql and "over" not in sql and "list(" not in sql)


def test_summaries_are_duckdbs(session, tmp_path):
    """Of every type; and of numbers that are none, where DuckDB's fails."""
    kinds = ["i::TINYINT", "i::UINTEGER", "i::HUGEINT", "i / 3.0::FLOAT", "(i * 1.5)::DECIMAL(10, 2)", "DATE '2020-01-01' + i::INT", "'x' || i", "i % 2 = 0",
             "TIMESTAMP '2020-01-01' + INTERVAL (i) HOUR", "TIMESTAMPTZ '2020-01-01 00:00:00Z' + INTERVAL (i) HOUR", "TIME '01:00'", "[i, NULL]", "{'a': i}",
             "MAP {i: 1}", "CASE WHEN i < 5 THEN NULL ELSE INTERVAL 1 DAY END", "('x' || i)::BLOB", "CASE WHEN i <> 3 THEN i END", "[i / 2.0]", "NULL::INT"]
    columns = ", ".join(f"{k} AS c{n}" for n, k in enumerate(kinds))
    con = duckdb.connect()
    con.execute(f"SET TimeZone = 'UTC'; COPY (SELECT {columns} FROM range(10) t(i)) TO '{tmp_path}/all.parquet'")
    for rows in ("TRUE", "FALSE"):
        frame = brant.read_parquet(tmp_path / "all.parquet", session=session).where(rows)
        want = con.execute(f"SUMMARIZE SELECT * FROM '{tmp_path}/all.parquet' WHERE {rows}").to_arrow_table()
        assert frame.summarize().columns == want.column_names
        assert frame.summarize().to_arrow().to_pylist() == want.to_pylist()
    odd = brant.from_pydict({"x": [1.0, float("nan"), 3.0, float("inf"), None]}, session=session).summarize().to_pylist()[0]
    assert (odd["min"], odd["max"], odd["avg"], float(odd["std"]), odd["count"], odd["null_percentage"]) == (
        "1.0", "nan", "2.0", math.sqrt(2), 5, decimal.Decimal("20.00"))


def test_summary_of_many_rows(tmp_path):
    """Goes the way of SUMMARIZE in SQL: the columns are dealt to several tasks."""
    columns = ", ".join(f"(i * {n + 1}) % {n + 50} AS c{n}" for n in range(9))
    duckdb.execute(f"COPY (SELECT {columns} FROM range(5000) t(i)) TO '{tmp_path}/many.parquet' (ROW_GROUP_SIZE 2048)")
    with brant.Session(workers=2, threads=1, distribute="always") as s:
        for name, value in (("sort_one_task_rows", 0), ("inline_bytes", 0), ("partitions", 4)):
            s.set(name, value)
        summary = brant.read_parquet(tmp_path / "many.parquet", session=s).summarize()
        assert summary.explain().count("tasks: one (aggregate without GROUP BY") == 4
        got = summary.select("column_name", "min", "max", "approx_unique", "avg", "count").to_arrow().to_pylist()
    want = duckdb.sql(f"SELECT column_name, min, max, approx_unique, avg, count FROM (SUMMARIZE '{tmp_path}/many.parquet')").to_arrow_table().to_pylist()
    assert [{**r, "avg": float(r["avg"])} for r in got] == [{**r, "avg": float(r["avg"])} for r in want]


def test_counting(df):
    assert df.count_rows() == len(df) == N
    assert df.where("k = 3").count_rows() == sum(i % 7 == 3 for i in range(N))
    assert df.agg(col("x").max()).item() == max(ROWS["x"])
    with pytest.raises(brant.Error, match="more than 1 rows"):
        df.select("x").item()


def test_samples(df):
    assert df.sample(size=100, seed=3).count_rows() == 100
    some = df.sample(0.5).count_rows()
    assert 0.4 * N < some < 0.6 * N
    assert df.sample(fraction=0).count_rows() == 0
    for bad in ({}, {"fraction": 0.1, "size": 3}, {"fraction": 2}, {"size": 3, "with_replacement": True}):
        with pytest.raises(brant.Error):
            df.sample(**bad)


def test_shuffled_rows_are_the_same_rows(df):
    a = df.select("t", "x").shuffle(seed=1).to_pydict()
    assert a["t"] != ROWS["t"] and sorted(a["t"]) == ROWS["t"]
    assert a == df.select("t", "x").shuffle(seed=1).to_pydict() != df.select("t", "x").shuffle(seed=2).to_pydict()
    assert sorted(df.shuffle().to_pydict()["t"]) == ROWS["t"]


def test_iterating(df):
    q = df.sort("t").select("t", "x")
    assert [r["x"] for r in q.iter_rows()] == ROWS["x"]
    assert list(q.limit(3).iter_rows(named=False)) == list(zip(ROWS["t"][:3], ROWS["x"][:3]))
    sizes = [b.num_rows for b in q.iter_batches(700)]
    assert sizes == [700] * 4 + [200]
    assert [v for b in q.iter_batches(1, format="pydict") for v in b["x"]] == ROWS["x"]
    assert sum(len(b["x"]) for b in q.iter_batches(None, format="pydict")) == N
    assert list(df.where("x > 5000").iter_batches(10)) == []
    for bad in (0, -1, True, "a"):
        with pytest.raises(brant.Error, match="batch_size"):
            df.iter_batches(bad)


def test_collected_frames_are_not_run_again(session, data, tmp_path):
    shutil.copytree(data, tmp_path / "gone")
    frame = brant.read_parquet(tmp_path / "gone", session=session).where("k = 1").select("x", "t")
    assert frame.collect() is frame and frame.is_kept
    shutil.rmtree(tmp_path / "gone")
    assert frame.to_arrow().num_rows == frame.count_rows() == len(frame.to_pylist()) == ROWS["k"].count(1)
    assert "gone" not in frame.where(col("x") > 5).sql() and "dataset(" in frame.where(col("x") > 5).sql()
    assert sorted(frame.where(col("x") > 990).to_pydict()["x"]) == sorted(x for k, x in zip(ROWS["k"], ROWS["x"]) if k == 1 and x > 990)
    assert frame.schema == {"x": "BIGINT", "t": "TIMESTAMP"}


def test_the_c_stream(df):
    got = pa.table(df.where("k = 0").select("x"))
    assert got.num_rows == sum(k == 0 for k in ROWS["k"])
    assert pa.schema(df.select("x", "g")) == pa.schema([("x", pa.int64()), ("g", pa.string())])


def test_wide_sums_are_decimals(df):
    t = df.agg(col("x").sum()).to_arrow()
    assert str(t.schema.field("x").type) == "decimal128(38, 0)" and t.column("x")[0].as_py() == sum(ROWS["x"])
    assert math.isclose(df.mean("x").item(), sum(ROWS["x"]) / N)


def test_words_of_others_for_the_same(session):
    df = brant.from_pydict({"id": [1, 2, 3], "k": ["a", "b", "a"], "x": [1.25, None, 3.0]}, session=session)
    ids = lambda d: d.to_pydict()["id"]  # noqa: E731
    assert ids(df.sort("id", descending=True)) == ids(df.sort("id", ascending=False)) == ids(df.sort(f.desc("id"))) == [3, 2, 1]
    assert ids(df.sort("k", "id", ascending=[False, True])) == ids(df.sort(["k", "id"], descending=[True, False])) == [2, 1, 3]
    assert ids(df.sort(f.asc("k"), f.desc("id"))) == [3, 1, 2]
    with pytest.raises(TypeError, match="'upwards'"):
        df.sort("id", upwards=True)
    ranked = df.sort("id").select("id", r=f.row_number().over(brant.Window.partition_by("k").order_by("id")))
    assert ranked.sort("id").to_pydict()["r"] == df.select("id", r=f.row_number().over(brant.Window().partition_by("k").order_by("id"))).sort(
        "id").to_pydict()["r"] == [1, 1, 2]
    assert df.select("id", r=f.sum("id").over(brant.Window.order_by("id").rows_between(None, 0))).sort("id").to_pydict()["r"] == [1, 3, 6]
    assert df.select(round(col("x"), 1)).to_pydict() == {"x": [1.3, None, 3.0]} and df.head().count_rows() == 3 and ids(df.sort("id").head(1)) == [1]
    assert df.select(brant.func(lambda i: i * 2, return_dtype=int)(col("id"))).columns == ["id"]


def test_joins_on_conditions_say_what_to_write(df):
    """on= is the same on both sides: a condition there would be compared with itself."""
    for on in (df["k"] == df["k"], [col("x"), col("g") == col("g")], (col("x") > 1) & (col("k") == 3)):
        with pytest.raises(brant.Error, match="left_on="):
            df.join(df, on)
    assert df.join(df, on=col("k") + 1, how="semi").count_rows() == N


def test_values_are_shown_whole_when_asked(session, capsys):
    long, wide = "a" * 5000 + "\n" + "z" * 3, {f"column_{i:03}": [i] for i in range(60)}
    df = brant.from_pydict({"s": [long], "b": [b"\0" * 40]}, session=session)
    df.show()
    assert "…" in (out := capsys.readouterr().out) and "zzz" not in out
    df.show(truncate=10)
    assert "│ aaaaaaaaa… │" in capsys.readouterr().out
    for frame in (df, df.collect()):
        frame.show(1, truncate=False)
        out = capsys.readouterr().out
        assert "a" * 5000 + "⏎zzz" in out and repr(b"\0" * 40) in out and "…" not in out
    brant.from_pydict(wide, session=session).show(truncate=False)
    assert "column_037" in capsys.readouterr().out


def test_frames_of_others_beside_ours(session):
    import pandas
    import polars
    df = brant.from_pydict({"id": [1, 2]}, session=session)
    for other in (pandas.DataFrame({"id": [2, 3]}), polars.DataFrame({"id": [2, 3]}), pa.table({"id": [2, 3]})):
        assert df.join(other, on="id").to_pydict() == {"id": [2]} and sorted(df.concat(other).to_pydict()["id"]) == [1, 2, 2, 3]
        assert sorted(df.union(other).to_pydict()["id"]) == [1, 2, 3] and df.join_asof(other, on="id").count_rows() == 2
    for wrong in (lambda: df.join([1], on="id"), lambda: df.concat({"id": [1]}), lambda: df.union(3), lambda: df.join_asof(None, on="id")):
        with pytest.raises(brant.Error, match="expected a DataFrame, not a builtins"):
            wrong()


def test_more_mistakes_have_words(session):
    @brant.cls
    class M:
        def __call__(self, x: int) -> int:
            return x + 1

    df = brant.range(2, session=session)
    assert df.select(M()(col("id"))).to_pydict() == {"M": [1, 2]}
    for wrong, words in ((lambda: M(col("id")), r"M\(…\)\(col"), (lambda: brant.func(lambda x: x, retries=3), "no option 'retries'.*max_retries"),
                         (lambda: brant.from_pylist([1, 2]), "a row is a dict"), (lambda: df.show("5"), "number of rows"),
                         (lambda: brant.Session(workers=-1), "workers"), (lambda: brant.Session(threads="2"), "threads"),
                         (lambda: df.repartition("id"), r"repartition\(8")):
        with pytest.raises(brant.Error, match=words):
            wrong()
    with pytest.raises(AttributeError, match="first"):
        df.group_by("id").show()
