# SPDX-License-Identifier: Apache-2.0
"""Where frames come from and where they go: files, memory, SQL over variables of the caller, written files, text of queries."""

import datetime as dt
import decimal
import os
import sqlite3
import textwrap

import brant
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from brant import col
from brant import functions as f


@pytest.fixture(scope="module")
def here():
    with brant.Session(distribute="never") as s:
        yield s


def text(sql):
    return textwrap.dedent(sql).strip()


# ---- the text


def test_the_query_is_readable(here, tmp_path):
    pq.write_table(pa.table({"region": ["a"], "amount": [1.5], "year": [2024]}), tmp_path / "s.parquet")
    sales = brant.read_parquet(tmp_path / "s.parquet", session=here)
    top = (
        sales.where(col("year") == 2024)
        .group_by("region")
        .agg(total=col("amount").sum(), n=f.count())
        .where(col("n") > 0)
        .sort("total", desc=True)
        .limit(10)
    )
    assert top.sql() == text(f"""
        SELECT *
        FROM (
          SELECT region, sum(amount) AS total, count(*) AS n
          FROM read_parquet('{tmp_path}/s.parquet')
          WHERE year = 2024
          GROUP BY region
        )
        WHERE n > 0
        ORDER BY total DESC
        LIMIT 10""")
    assert sales.with_columns(amount=col("amount") * 2, tax=col("year")).sql() == (
        f"SELECT * REPLACE (amount * 2 AS amount), year AS tax\nFROM read_parquet('{tmp_path}/s.parquet')"
    )
    assert sales.exclude("year").sql() == f"SELECT region, amount\nFROM read_parquet('{tmp_path}/s.parquet')"
    assert (
        sales.where((col("year") > 1) | (col("year") < 0))
        .where("amount > 1 or year = 3")
        .sql()
        .endswith("WHERE (year > 1 OR year < 0) AND (amount > 1 or year = 3)")
    )


def test_what_is_used_twice_is_printed_once(here):
    big = brant.range(100, session=here).with_columns(x=col("id") % 7)
    frame = big
    for _ in range(12):
        frame = frame.union_all(frame)
    assert len(frame.sql()) < 3000 and frame.count_rows() == 100 * 2**12
    twice = big.join(big.group_by("x").agg(n=f.count()), on="x")
    assert twice.sql().count("range(") == 1 and "_shared_1" in twice.sql()
    assert twice.agg(col("n").sum()).item() == sum(15**2 if x < 2 else 14**2 for x in range(7))


def test_chance_is_one_draw(here):
    drawn = brant.range(1000, session=here).with_columns(r=f.random())
    assert drawn.join(drawn, on="id").where(col("r") != col("r_right")).count_rows() == 0


def test_comments_and_semicolons_in_text(here):
    df = brant.sql("select 1 as a -- one;\n;", session=here)
    assert df.where("a = 1 -- yes").where("a > 0").select(brant.sql_expr("a + 1 -- two").alias("b")).to_pydict() == {"b": [2]}
    t = brant.sql("select * from df -- all", df=df, session=here)
    assert t.sort("a").to_pydict() == {"a": [1]}


def test_nothing_runs_before_it_must():
    """Frames over a session that counts what it is asked to run."""

    class Counting(brant.Session):
        asked = []

        def execute(self, sql):
            self.asked.append(sql)
            return super().execute(sql)

    with Counting(distribute="never") as s:
        df = brant.from_pydict({"a": [1, 2], "b": [3, 4]}, session=s)
        out = df.where(col("a") > 1).with_columns(c=col("b")).sort("c").join(df, on="a").group_by("a").agg(n=f.count()).limit(1)
        out.sql()
        assert s.asked == []
        assert out.columns == ["a", "n"] and s.asked == []
        assert out.schema == {"a": "BIGINT", "n": "BIGINT"} and len(s.asked) == 1 and "DESCRIBE" in s.asked[0]
        assert out.schema and out.dtypes and len(s.asked) == 1
        assert repr(out) == "a  BIGINT\nn  BIGINT" and len(s.asked) == 1


def test_wrong_names_fail_at_once(here):
    df = brant.from_pydict({"customer": [1], "Amount": [2], "s": [{"x": 1}]}, session=here)
    for wrong, words in [
        (lambda: df.select("custmer"), "no column custmer; did you mean customer"),
        (lambda: df.where(col("amout") > 1), 'did you mean "Amount"'),
        (lambda: df.with_columns(z=col("q") + 1), 'no column q; the columns are customer, "Amount", s'),
        (lambda: df.sort("zz"), "no column zz"),
        (lambda: df.group_by("zz"), "no column"),
        (lambda: df.group_by("customer").agg(col("zz").sum()), "no column"),
        (lambda: df.exclude("zz"), "no column"),
        (lambda: df.rename({"zz": "a"}), "no column"),
        (lambda: df.join(df.select("customer"), on="Amount"), "on the right"),
        (lambda: df["zz"], "no column"),
        (lambda: df.select("s.x"), r"col\('s'\).struct"),
        (lambda: df.select("customer", "CUSTOMER"), "two columns would be called"),
        (lambda: df.explode("zz"), "no column"),
        (lambda: df.select(col("customer").alias("a"), a=col("s")), "two columns"),
        (lambda: df.select(a=col("s"), A=col("s")), "more than case"),
        (lambda: df.group_by("customer").agg(col("customer").sum()), "name of the key"),
        (lambda: df.select(), "at least"),
        (lambda: df.exclude(*df.columns), "no column would be left"),
        (lambda: df.join(df), "on="),
        (lambda: df.join(df, on="s", how="sideways"), "sideways"),
        (lambda: df.join(df, on="s", left_on="s"), "either"),
        (lambda: df.join(3, on="s"), "expected a DataFrame"),
        (lambda: df.concat(df.select("customer")), "columns differ"),
        (lambda: df.union(df.select("customer")), "3 and 1"),
        (lambda: df.limit(-1), "limit"),
        (lambda: df.limit("a"), "limit"),
        (lambda: df[::2], "step"),
        (lambda: df[-3:], "negative"),
        (lambda: bool(df), "truth value"),
        (lambda: df.sort("s", desc=[True, False]), "2 values for 1"),
        (lambda: df.sort("s", True), "desc=True"),
        (lambda: df.join_asof(df, on="s", strategy="next"), "nearest"),
        (lambda: df.iter_batches(format="x"), "format"),
    ]:
        with pytest.raises((brant.Error, TypeError), match=words):
            wrong()
    assert df.select("CUSTOMER", "amount").columns == ["customer", "Amount"]
    assert "customer" in df and "AMOUNT" in df and "zz" not in df
    with pytest.raises(brant.Error):
        brant.read_parquet("/nowhere/at/all.parquet", session=here).where(col("a") > 1)


def test_selecting_with_brackets(here):
    df = brant.from_pydict({"a": [1, 2, 3], "b": [4, 5, 6]}, session=here)
    assert df["a", "b"].columns == df[["a", "b"]].columns == ["a", "b"]
    assert df[df["a"] > 1].to_pydict() == {"a": [2, 3], "b": [5, 6]}
    assert df[1:].to_pydict()["a"] == [2, 3] and df[:1].count_rows() == 1 and df[2:1].count_rows() == 0
    assert df.select(df[1], df[-2]).columns == ["b", "a"]


# ---- memory


ARROW = {
    "i8": pa.array([1, None, -128], pa.int8()),
    "u64": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "f32": pa.array([0.5, None, float("nan")], pa.float32()),
    "f64": pa.array([0.1, None, float("-inf")]),
    "b": pa.array([True, None, False]),
    "s": pa.array(["a'b", None, "\0;--"]),
    "ls": pa.array(["x", None, ""], pa.large_string()),
    "bin": pa.array([b"\0\xff", None, b""]),
    "d": pa.array([dt.date(2024, 1, 1), None, dt.date(1, 1, 1)]),
    "ts": pa.array([dt.datetime(2024, 1, 1, 1, 2, 3, 4), None, dt.datetime(1960, 1, 1)]),
    "tz": pa.array(
        [dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc), None, dt.datetime(1960, 1, 1, tzinfo=dt.timezone.utc)], pa.timestamp("us", "UTC")
    ),
    "dec": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-99.99")], pa.decimal128(4, 2)),
    "wide": pa.array([10**30, None, -5], pa.decimal128(38, 0)),
    "l": pa.array([[1, None], None, []], pa.list_(pa.int16())),
    "st": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}]),
    "nest": pa.array([[{"k": [1]}], None, []]),
    "t": pa.array([dt.time(1, 2, 3, 4), None, dt.time(0)]),
    "n": pa.array([None, None, None]),
    "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
    "dict": pa.array(["p", None, "q"]).dictionary_encode(),
}


@pytest.mark.parametrize("rows", [0, 3, 3000])
@pytest.mark.parametrize("name", ARROW)
def test_arrow_there_and_back(here, name, rows):
    column = pa.chunked_array([ARROW[name]] * (rows // 3), ARROW[name].type) if rows else pa.chunked_array([], ARROW[name].type)
    got = brant.from_arrow(pa.table({name: column}), session=here).to_arrow().column(0)
    assert repr(got.to_pylist()) == repr(column.to_pylist())
    if not pa.types.is_dictionary(column.type) and not pa.types.is_null(column.type) and name != "ls":
        assert got.type == column.type


def test_durations_and_nanoseconds(here):
    t = pa.table(
        {
            "ns": pa.array([1704067200000000001, None], pa.timestamp("ns")),
            "s": pa.array([5, None], pa.timestamp("s")),
            "u": pa.array([1500000, None], pa.duration("us")),
        }
    )
    got = brant.from_arrow(t, session=here)
    assert got.schema == {"ns": "TIMESTAMP_NS", "s": "TIMESTAMP_S", "u": "INTERVAL"}
    assert got.select(col("ns").cast(str), x=f.epoch_us(col("u"))).to_pylist() == [
        {"ns": "2024-01-01 00:00:00.000000001", "x": 1500000},
        {"ns": None, "x": None},
    ]


def test_python_rows(here):
    assert brant.from_pydict({"a": [1, None], "b": ["x", "y"]}, session=here).to_pylist() == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    assert brant.from_pylist([{"a": 1}, {"a": 2, "b": "z"}], session=here).to_pydict() == {"a": [1, 2], "b": [None, "z"]}
    assert brant.from_pydict({"big": [10**30, 1]}, session=here).to_pydict() == {"big": [10**30, 1]}
    for wrong, words in (
        (lambda: brant.from_pydict({"a": [1, "x"]}), "column a is not of one type"),
        (lambda: brant.from_pydict({"a": [1], "b": []}), "different lengths"),
        (lambda: brant.from_pydict({}), "no columns"),
        (lambda: brant.from_pydict({1: [2]}), "must be strings"),
        (lambda: brant.from_pylist([]), "no columns"),
        (lambda: brant.from_pydict({"a": [1], "A": [2]}), "more than case"),
        (lambda: brant.from_arrow(3), "no Arrow data"),
        (lambda: brant.from_arrow([]), "empty list"),
        (lambda: brant.from_pydict({"": [1]}), "empty name"),
    ):
        with pytest.raises(brant.Error, match=words):
            wrong()


def test_arrow_givers(here):
    t = pa.table({"a": [1, 2, 3]})
    for giver in (t, t.to_batches()[0], t.to_batches(), t.to_reader(), brant.from_arrow(t, session=here)):
        assert brant.from_arrow(giver, session=here).to_pydict() == {"a": [1, 2, 3]}


def test_large_inputs_leave_with_their_session(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with brant.Session(distribute="never", temp_dir=str(tmp_path)) as s:
        df = brant.from_pydict({"a": list(range(5000))}, session=s)
        assert df.agg(col("a").sum()).item() == sum(range(5000))
        assert len(df.sql()) < 1000
    assert list(tmp_path.iterdir()) == []


def test_pandas(here):
    pd = pytest.importorskip("pandas")
    p = pd.DataFrame({"a": [1, 2], "s": ["x", None], "c": pd.Categorical(["u", "v"]), "t": pd.to_datetime(["2024-01-01", None])})
    df = brant.from_pandas(p, session=here)
    assert df.columns == ["a", "s", "c", "t"]
    back = df.to_pandas()
    assert back["a"].tolist() == [1, 2] and back["c"].tolist() == ["u", "v"] and back["t"].isna().tolist() == [False, True]
    assert brant.sql("select sum(a)::int as n from p", session=here).to_pydict() == {"n": [3]}
    with pytest.raises(brant.Error, match="strings"):
        brant.from_pandas(pd.DataFrame({0: [1]}), session=here)
    assert [len(b) for b in df.iter_batches(1, format="pandas")] == [1, 1]


def test_polars(here):
    pl = pytest.importorskip("polars")
    p = pl.DataFrame({"a": [1, 2], "s": ["x", None], "l": [[1], []]})
    assert brant.from_polars(p, session=here).to_polars().equals(p)
    assert brant.from_arrow(p, session=here).to_polars().equals(p)
    lazy = p.lazy()
    assert brant.sql("select count(*) as n from lazy", session=here).item() == 2
    assert pl.DataFrame(brant.from_polars(p, session=here)).equals(p)


# ---- SQL


def test_variables_in_sql(here):
    orders = brant.from_pydict({"k": [1, 2, 2], "v": [1, 2, 3]}, session=here)
    names = pa.table({"k": [1, 2], "name": ["one", "two"]})
    q = brant.sql(
        "with s as (select k, sum(v)::int as v from orders group by k) select name, v from s join names using (k) order by name",
        session=here,
    )
    assert q.to_pydict() == {"name": ["one", "two"], "v": [1, 5]}
    assert q.where(col("v") > 1).to_pydict() == {"name": ["two"], "v": [5]}
    assert brant.sql("select count(*) as n from t, (select 1 where exists (from orders))", t=orders, session=here).item() == 3

    def inner():
        return brant.sql("select max(v) as m from orders", session=here, orders=orders.where("v < 3")).item()

    assert inner() == 2
    with pytest.raises(brant.Error, match="nothing_like_it"):
        brant.sql("select * from nothing_like_it", session=here).to_pydict()


def test_statements_in_sql(here):
    brant.sql("create or replace view numbers as select 1 as a union all select 2", session=here)
    assert brant.table("numbers", session=here).sort("a").to_pydict() == {"a": [1, 2]}
    assert brant.sql("create or replace view v2 as select 5 as b; select * from v2", session=here).item() == 5
    assert brant.sql("describe numbers", session=here).select("column_name").to_pydict() == {"column_name": ["a"]}
    assert brant.sql("values (1), (2)", session=here).count_rows() == 2
    for wrong in ("selec 1", "", "select 1; selec 2"):
        with pytest.raises(brant.Error):
            brant.sql(wrong, session=here).to_pydict()


def test_frames_of_two_sessions_do_not_mix(here):
    with brant.Session(distribute="never") as other:
        a, b = brant.range(3, session=here), brant.range(3, session=other)
        with pytest.raises(brant.Error, match="different sessions"):
            a.join(b, on="id")
        with pytest.raises(brant.Error, match="another session"):
            brant.sql("select * from b", session=here)


def test_other_databases(here, tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as c:
        c.executescript("create table t(a int, b text); insert into t values (1, 'x'), (2, null);")
    assert brant.read_sql("select * from t order by a", lambda: sqlite3.connect(tmp_path / "x.db"), session=here).to_pydict() == {
        "a": [1, 2],
        "b": ["x", None],
    }


def test_ranges(here):
    assert brant.range(3, session=here).to_pydict() == {"id": [0, 1, 2]}
    assert brant.range(5, 1, -2, session=here).to_pydict() == {"id": [5, 3]}
    assert brant.range(3, 3, session=here).count_rows() == 0
    for bad in ((1, 2, 0), (1.5,), ("3",), (True,)):
        with pytest.raises(brant.Error):
            brant.range(*bad, session=here)


# ---- files


def frame(session, rows=1000):
    return brant.range(rows, session=session).with_columns(k=col("id") % 3, s=f.concat("r'", col("id")))


def files(at):
    return sorted(os.path.relpath(os.path.join(d, n), at) for d, _, names in os.walk(at) for n in names)


def test_write_parquet(session, tmp_path):
    df = frame(session)
    manifest = df.write_parquet(tmp_path / "out")
    assert manifest.agg(f.sum("rows")).item() == 1000 and set(manifest.columns) >= {"file", "rows", "bytes"}
    assert sorted(manifest.to_pydict()["file"]) == files(tmp_path / "out")
    assert brant.read_parquet(tmp_path / "out", session=session).sort("id").to_arrow().equals(df.sort("id").to_arrow())
    with pytest.raises(brant.Error):
        df.write_parquet(tmp_path / "out")
    df.limit(5).write_parquet(tmp_path / "out", mode="append")
    assert brant.read_parquet(tmp_path / "out", session=session).count_rows() == 1005
    brant.read_parquet(tmp_path / "out", session=session).where("id < 3").write_parquet(
        tmp_path / "out", mode="overwrite", compression="zstd"
    )
    assert brant.read_parquet(tmp_path / "out", session=session).count_rows() == 7 - 1
    with pytest.raises(brant.Error, match="mode"):
        df.write_parquet(tmp_path / "out", mode="replace")


def test_write_partitioned(session, tmp_path):
    manifest = frame(session).write_parquet(tmp_path / "p", partition_cols="K")
    assert {n.split("/")[0] for n in files(tmp_path / "p")} == {"k=0", "k=1", "k=2"}
    assert sorted(dict(p)["k"] for p in manifest.to_pydict()["partition"])[:1] == ["0"]
    back = brant.read_parquet(tmp_path / "p", session=session)
    assert back.group_by("k").count().sort("k").to_pydict() == {"k": [0, 1, 2], "count": [334, 333, 333]}
    with pytest.raises(brant.Error, match="no column"):
        frame(session).write_parquet(tmp_path / "q", partition_cols=["zz"])


def test_one_file(session, tmp_path):
    df = frame(session, 10).sort("id")
    for write, read, name in (
        ("write_parquet", brant.read_parquet, "a'b.parquet"),
        ("write_csv", brant.read_csv, "a.csv"),
        ("write_json", brant.read_json, "a.jsonl"),
    ):
        at = tmp_path / name
        assert getattr(df, write)(at).count_rows() == 1 and at.is_file()
        assert read(at, session=session).to_pydict() == df.to_pydict()
        with pytest.raises(brant.Error, match="there already"):
            getattr(df, write)(at)
        getattr(df.limit(2), write)(at, mode="overwrite")
        assert read(at, session=session).count_rows() == 2
    with pytest.raises(brant.Error, match="append"):
        df.write_csv(tmp_path / "a.csv", mode="append")


def test_csv_and_json_options(here, tmp_path):
    df = brant.from_pydict({"a": [1, None], "b c": ["x;y", "z"]}, session=here)
    df.write_csv(tmp_path / "o.csv", delimiter=";", header=False)
    assert (tmp_path / "o.csv").read_text() == '1;"x;y"\n;z\n'
    back = brant.read_csv(tmp_path / "o.csv", delim=";", header=False, schema={"a": int, "b c": str}, session=here)
    assert back.to_pydict() == df.to_pydict() and back.dtypes == ["BIGINT", "VARCHAR"]
    df.write_json(tmp_path / "dir", mode="overwrite")
    assert brant.read_json(tmp_path / "dir", session=here).to_pydict() == df.to_pydict()
    with pytest.raises(brant.Error, match="option"):
        brant.read_csv(tmp_path / "o.csv", **{"x = 1, y": 2}, session=here)


def test_paths(here, tmp_path, monkeypatch):
    odd = tmp_path / "we[i]rd 'dir*"
    odd.mkdir()
    for i in range(3):
        pq.write_table(pa.table({"a": [i]}), odd / f"{i}.parquet")
    assert brant.read_parquet(odd, session=here).sort("a").to_pydict() == {"a": [0, 1, 2]}
    assert brant.read_parquet([tmp_path / "n.parquet"], session=here).sql()
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"a": [7]}), "n.parquet")
    df = brant.read_parquet("n.parquet", session=here)
    monkeypatch.chdir("/")
    assert df.to_pydict() == {"a": [7]}
    assert brant.read_parquet([tmp_path / "n.parquet"], filename=True, session=here).columns == ["a", "filename"]
    (tmp_path / "t.txt").write_text("hello")
    assert brant.read_text(tmp_path / "t.txt", session=here).select("content").item() == "hello"
    assert brant.read_blob(tmp_path / "*.txt", session=here).select("content").item() == b"hello"
    assert brant.from_glob_path(tmp_path / "*.txt", session=here).to_pydict() == {"file": [str(tmp_path / "t.txt")]}
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as out, pa.ipc.new_file(out, pa.schema([("a", pa.int64())])) as w:
        w.write(pa.record_batch({"a": [1, 2]}))
    assert brant.read_arrow(tmp_path / "x.arrow", session=here).to_pydict() == {"a": [1, 2]}


# ---- looking at it


def test_what_is_shown(here, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    df = brant.from_pydict({"a": [1, None], "日本": ["x\ny", "長い" * 40], "<b>": [b"\0", None]}, session=here)
    df.show()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("╭") and "x⏎y" in lines[4] and "NULL" in lines[5] and lines[-1] == "(2 rows)"
    assert "日本" in repr(df) and "VARCHAR" in repr(df) and "╭" not in repr(df)
    assert "not run yet" in df._repr_html_() and "&lt;b&gt;" in df._repr_html_() and "<b>" not in df._repr_html_()
    assert "╭" in repr(df.collect()) and "<td>NULL</td>" in df._repr_html_()
    brant.range(100, session=here).show(2)
    assert capsys.readouterr().out.splitlines()[-1] == "(first 2 rows)"
    wide = brant.sql("select " + ", ".join(f"{i} as column_{i}" for i in range(50)), session=here)
    wide.show()
    out = capsys.readouterr().out.splitlines()
    assert max(map(len, out)) <= 100 and "more columns" in out[-1] and "column_49" in out[1]


def test_explain(session):
    df = frame(session).group_by("k").agg(n=f.count())
    assert "stage" in df.explain().lower() and "stage" in df.explain(analyze=True).lower()
    assert df.describe().to_pylist() == [{"column_name": "k", "type": "BIGINT"}, {"column_name": "n", "type": "BIGINT"}]


def test_pipes(here):
    df = brant.range(5, session=here)
    assert df.pipe(lambda d, n: d.limit(n), 2).count_rows() == df.transform(lambda d: d.limit(2)).count_rows() == 2
    with pytest.raises(brant.Error, match="transform"):
        df.transform(lambda d: 3)
    assert brant.concat([df, df]).count_rows() == 10
    assert df.with_row_number("n", order_by=col("id").desc()).sort("n").to_pydict() == {"n": [1, 2, 3, 4, 5], "id": [4, 3, 2, 1, 0]}


def test_batches_as_arrays(here):
    np = pytest.importorskip("numpy")
    got = list(brant.range(5, session=here).sort("id").iter_batches(2, format="numpy"))
    assert [g["id"].tolist() for g in got] == [[0, 1], [2, 3], [4]] and isinstance(got[0]["id"], np.ndarray)
