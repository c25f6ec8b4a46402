# SPDX-License-Identifier: Apache-2.0
"""Run-time filters: the range of one side's keys on the other side's rows, splits that are left out by it, fewer rows shuffled, and right
answers for keys of all types, in both modes. filter_bytes = 1 leaves the keys themselves out, so that the range is all there is."""
import json

import pytest

import brantlib
import compare
import queries

SETTINGS = {"broadcast_bytes": 0, "sort_one_task_rows": 0, "split_bytes": 20000, "partitions": 3,
            "sorted_scans": "false"}  # the files are in the order of k: nothing would move
N = 6  # files of 2,000 rows each, in the order of their keys

# Per column of facts an expression over i, 0 to 11,999: NULLs and ends of types among them.
COLUMNS = {
    "k": "i",
    "small": "(i // 2000 * 20 + i % 20 - 60)::TINYINT",
    "wide": "CASE WHEN i % 97 = 0 THEN NULL WHEN i = 5 THEN -9223372036854775808 WHEN i = 11999 THEN 9223372036854775807 "
            "ELSE (i - 6000)::BIGINT * 1000000007 END",
    "unsigned": "(i * 300000)::UINTEGER",
    "huge": "i::HUGEINT * 100000000000000000000",
    "exact": "(i - 6000)::DECIMAL(9,2) / 4",
    "real": "CASE WHEN i % 3000 = 0 THEN 'nan'::DOUBLE WHEN i % 3000 = 1 THEN -0.0 WHEN i % 3000 = 2 THEN 'infinity'::DOUBLE ELSE i - 6000 END",
    "name": "'n' || lpad(i::VARCHAR, 6, '0')",
    "day": "CASE WHEN i = 0 THEN '-infinity'::DATE WHEN i = 11999 THEN 'infinity'::DATE ELSE DATE '1965-01-01' + i::INTEGER END",
    "at": "CASE WHEN i % 50 = 0 THEN NULL ELSE TIMESTAMP '1969-12-31 23:00:00.5' + INTERVAL (i) MINUTE END",
    "zoned": "TIMESTAMPTZ '1969-12-31 23:00:00.25+02' + INTERVAL (i) MINUTE",
    "flag": "i % 2 = 0",
    "kind": "(['a', 'b', 'c'])[i % 3 + 1]::ENUM('c', 'a', 'b')",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """facts: by k; part: rows 3,000 to 4,599 of it, in one file; odd: one that says nothing of its values."""
    folder = tmp_path_factory.mktemp("filters")
    duck = queries.Duck()
    columns = ", ".join(f"{e} AS {c}" for c, e in COLUMNS.items())
    for f in range(N):
        duck.execute(f"COPY (SELECT {columns}, i % 7 AS v FROM range({f * 2000}, {f * 2000 + 2000}) t(i)) TO '{folder}/facts-{f}.parquet'")
    duck.execute(f"COPY (SELECT {columns}, i * 3 AS w FROM range(3000, 4600) t(i) UNION ALL SELECT {', '.join(['NULL'] * len(COLUMNS))}, 1) "
                 f"TO '{folder}/part.parquet'")
    duck.execute(f"COPY (SELECT * FROM '{folder}/part.parquet' WHERE w < 0) TO '{folder}/empty.parquet'")
    duck.execute(f"COPY (SELECT NULL::INTEGER AS k, 5 AS w FROM range(900)) TO '{folder}/nulls.parquet'")
    return folder


def views(data):
    return [f"CREATE VIEW facts AS SELECT * FROM '{data}/facts-*.parquet'"] + [
        f"CREATE VIEW {t} AS SELECT * FROM '{data}/{t}.parquet'" for t in ("part", "empty", "nulls")]


@pytest.fixture(scope="module")
def duck(data):
    d = queries.Duck()
    d.execute("SET disabled_optimizers = 'join_filter_pushdown'")  # 1.5.5 pushes the keys' range below an ORDER BY … LIMIT
    for v in views(data):
        d.execute(v)
    return d


def open_session(data, mode="staged", **settings):
    s = brantlib.Session(workers=2, threads=1, distribute="always", mode=mode, settings={**SETTINGS, **settings})
    for v in views(data):
        s.run(v)
    return s


def check(session, duck, sql):
    table, _ = session.run(sql)
    assert compare.difference(compare.rows_of(table), compare.rows_of(duck.con.execute(sql).to_arrow_table()), ordered=False) is None, sql


def measured(session, sql):
    """The stage that scans facts and is filtered: its SQL, what was measured of it."""
    stages = json.loads(session.explain(sql, True, True))["stages"]
    found = [s for s in stages if any(i["kind"] == "FILTER" for i in s["inputs"])]
    assert len(found) == 1, sql
    return found[0].get("task_sql", ""), found[0]["measured"]


def join(column, other="part"):
    return f"SELECT f.k, f.v, s.w FROM facts f JOIN {other} s ON f.{column} = s.{column}"


def test_rows_outside_the_range_stay_where_they_are(data, duck):
    with open_session(data, filter_bytes=1, adaptive="false") as s:
        text, m = measured(s, join("k"))
        assert "BETWEEN 3000 AND 4599" in text and "SEMI JOIN" not in text
        assert m["tasks"] == N and m["rows_out"] == 1600
        check(s, duck, join("k"))
    with open_session(data, filter_bytes=0) as s:  # no filters at all: everything moves
        stages = json.loads(s.explain(join("k"), True, True))["stages"]
        assert not any(i["kind"] == "FILTER" for st in stages for i in st["inputs"])
        assert any(st["measured"]["rows_out"] == N * 2000 for st in stages)


def test_splits_that_no_key_lies_in_are_not_read(data, duck):
    with open_session(data, filter_bytes=1) as s:
        text, m = measured(s, join("k"))
        assert m["tasks"] == 2 and m["rows_in"] == 4000 and m["rows_out"] == 1600
        assert m["adapted"] == f"2 of {N} splits: no keys that the others could meet"
        check(s, duck, join("k"))
        # the keys themselves too, when they are few
    with open_session(data, filter_bytes="32MiB") as s:
        few = "SELECT f.k, f.v, s.w FROM facts f JOIN (SELECT * FROM part WHERE k % 100 = 7) s ON f.k = s.k"
        text, m = measured(s, few)
        assert "SEMI JOIN" in text and m["tasks"] == 2 and m["rows_out"] == 16
        check(s, duck, few)


def test_a_range_that_holds_everything_is_not_asked_for(data, duck):
    sql = "SELECT f.v, s.k FROM facts f JOIN (SELECT k FROM facts WHERE v = 3 OR k IN (0, 11999)) s ON f.k = s.k"
    with open_session(data, filter_bytes=1) as s:
        stages = json.loads(s.explain(sql, True, True))["stages"]
        assert any(i["kind"] == "FILTER" for st in stages for i in st["inputs"])
        assert not any("BETWEEN" in st.get("task_sql", "") for st in stages)
        check(s, duck, sql)


@pytest.mark.parametrize("mode", ["staged", "eager"])
def test_keys_of_all_types(data, duck, mode):
    with open_session(data, mode, filter_bytes=1) as s:
        for column in COLUMNS if mode == "staged" else ("wide", "name", "at"):
            if column in ("flag", "kind", "real"):  # few values: few rows of them
                sql = (f"SELECT count(*), sum(f.v) FROM (FROM facts WHERE k % 50 = 0) f JOIN (FROM part WHERE k % 40 = 0 OR k IS NULL) s "
                       f"ON f.{column} = s.{column}")
            else:
                sql = join(column)
            check(s, duck, sql)
            check(s, duck, sql.replace("JOIN", "SEMI JOIN").replace(", s.w", ""))
            check(s, duck, sql.replace("JOIN", "ANTI JOIN").replace(", s.w", ""))
            check(s, duck, sql.replace("JOIN", "LEFT JOIN"))
            check(s, duck, sql.replace("JOIN", "RIGHT JOIN"))


def test_types_that_have_a_range(data):
    told = {"k": 2, "small": 2, "wide": 2, "unsigned": 2, "day": 2, "at": N, "zoned": N}  # splits read: no footers of timestamps
    with open_session(data, filter_bytes=1) as s:
        for column, tasks in told.items():
            text, m = measured(s, join(column))
            assert m["rows_out"] == 1600 or column in ("small", "wide", "at"), column
            assert m["tasks"] == tasks, column
        for column in ("huge", "exact", "real", "name", "kind"):
            text, m = measured(s, join(column))
            assert m["tasks"] == N and "BETWEEN" not in text, column


def test_ends_of_types(data, duck):
    """The least BIGINT can't be written as a literal, dates at infinity have no number of days: their ranges are left out."""
    with open_session(data, filter_bytes=1) as s:
        for column, value in (("wide", "-9223372036854775808"), ("day", "'infinity'"), ("day", "'-infinity'")):
            sql = f"SELECT f.k, g.k FROM facts f JOIN (FROM facts WHERE {column} = {value} OR k IN (17, 4000)) g ON f.{column} = g.{column}"
            check(s, duck, sql)


def test_no_keys_and_keys_that_are_null(data, duck):
    with open_session(data, filter_bytes=1) as s:
        for other in ("empty", "nulls"):
            text, m = measured(s, join("k", other))
            assert m["tasks"] == 0, other
            check(s, duck, join("k", other))
            check(s, duck, join("k", other).replace("JOIN", "LEFT JOIN"))
            check(s, duck, f"SELECT count(*) FROM facts f ANTI JOIN {other} s ON f.k = s.k")


def test_splits_stay_where_keys_are_by_chance(data, duck):
    """Made again, the keys could be others: nothing that was left out could be read then."""
    sql = "SELECT count(*) FROM facts f JOIN (SELECT k FROM part LIMIT 1500) s ON f.k = s.k"
    with open_session(data, filter_bytes=1) as s:
        text, m = measured(s, sql)
        assert m["tasks"] == N and "BETWEEN" in text and 1500 <= m["rows_out"] <= 1600
        check(s, duck, sql)


@pytest.mark.parametrize("mode", ["staged", "eager"])
def test_splits_by_the_keys_of_a_broadcast_side(data, duck, mode):
    """Its rows come to every task; splits that have no partner for them are left out, where rows without one don't show."""
    with open_session(data, mode, broadcast_bytes="1GiB", inline_bytes=0) as s:
        for sql, tasks in ((join("k"), 2), (join("k").replace("JOIN", "SEMI JOIN").replace(", s.w", ""), 2), (join("day"), 2),
                           (join("k", "nulls"), 0), (join("k", "empty"), 0), (join("name"), N), (join("at"), N),
                           (join("k").replace("JOIN", "LEFT JOIN"), N), (join("k").replace("JOIN", "ANTI JOIN").replace(", s.w", ""), N),
                           ("SELECT f.v, s.w, g.k FROM facts f JOIN part s ON f.k = s.k JOIN (FROM part WHERE w < 9100) g ON g.k = f.k", 1),
                           ("SELECT f.v, s.k FROM facts f JOIN (SELECT k FROM part LIMIT 1600) s ON f.k = s.k", N)):
            stages = json.loads(s.explain(sql, True, True))["stages"]
            found = [st["measured"] for st in stages if any("facts" in f for scan in st["scans"] for f in scan["files"])
                     and any(i["kind"] == "BROADCAST" for i in st["inputs"])]
            assert [m["tasks"] for m in found] == [tasks], sql
            if "LIMIT" not in sql:
                check(s, duck, sql)


OTHER = [
    "SELECT f.k, f.v, s.w FROM facts f JOIN part s ON f.k = s.k AND f.v = s.w % 7",
    "SELECT f.k, s.w FROM (SELECT k + 1 AS k, v FROM facts) f JOIN part s ON f.k = s.k",
    "SELECT f.key, s.w FROM (SELECT v, k AS key FROM facts WHERE v <> 3) f JOIN part s ON s.k = f.key",
    "SELECT f.k, s.w FROM (SELECT k, v FROM facts UNION ALL SELECT k - 5, v FROM facts) f JOIN part s ON f.k = s.k",
    "SELECT f.k, f.n, s.w FROM (SELECT k, count(*) AS n FROM facts GROUP BY k) f JOIN part s ON f.k = s.k",
    "SELECT f.k, f.v, s.w FROM (FROM facts ORDER BY v, k LIMIT 3000) f JOIN part s ON f.k = s.k",
    "SELECT f.k, f.n, s.w FROM (SELECT k, row_number() OVER (PARTITION BY v ORDER BY k) AS n FROM facts) f JOIN part s ON f.k = s.k",
    "SELECT a.k, b.v, s.w FROM facts a JOIN facts b ON a.k = b.k JOIN part s ON b.k = s.k",
    "SELECT f.k, s.w, (SELECT count(*) FROM part x WHERE x.k = f.k) FROM facts f JOIN part s ON f.k = s.k WHERE f.v = 2",
    "SELECT f.k FROM facts f WHERE f.k IN (SELECT k FROM part WHERE w % 2 = 0) AND f.v > 1",
    "SELECT f.k FROM facts f WHERE f.k NOT IN (SELECT k FROM part WHERE k IS NOT NULL) AND f.v > 1",
    "WITH x AS (SELECT * FROM facts WHERE v < 5) SELECT a.k, s.w FROM x a JOIN part s ON a.k = s.k UNION ALL SELECT b.k, b.v FROM x b WHERE b.k < 9",
    "SELECT monotonically_increasing_id() >= 0 AS id, f.k FROM facts f JOIN part s ON f.k = s.k",
]


@pytest.mark.parametrize("mode", ["staged", "eager"])
def test_shapes(data, duck, mode):
    for filter_bytes in (1, "32MiB") if mode == "staged" else (1,):
        with open_session(data, mode, filter_bytes=filter_bytes) as s:
            for sql in OTHER:
                if "monotonically" in sql:
                    table, _ = s.run(sql)
                    assert table.num_rows == 1600
                else:
                    check(s, duck, sql)


def test_files_that_say_nothing_or_less(data, duck, tmp_path):
    """No statistics, columns under another case, a file without the column's values: read, or left out, but never wrong."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    pq.write_table(pa.table({"k": pa.array(range(5000), pa.int32()), "v": pa.array([1] * 5000)}), tmp_path / "a.parquet", write_statistics=False)
    pq.write_table(pa.table({"K": pa.array(range(9000, 12000), pa.int64()), "V": pa.array([2] * 3000)}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"k": pa.array([None] * 3000, pa.int32()), "v": pa.array([3] * 3000)}), tmp_path / "c.parquet")
    pq.write_table(pa.table({"k": pa.array(range(4000, 7000), pa.uint16()), "v": pa.array([4] * 3000)}), tmp_path / "d.parquet", row_group_size=500)
    sql = f"SELECT f.k, f.v, s.w FROM '{tmp_path}/*.parquet' f JOIN part s ON f.k = s.k"
    with open_session(data, filter_bytes=1, split_bytes=2000) as s:
        text, m = measured(s, sql)
        assert m["rows_in"] < 14000 and m["rows_out"] == 1600 + 600
        check(s, duck, sql)
