# SPDX-License-Identifier: Apache-2.0
"""Scans of real files, on three workers: what a query doesn't need is not read and no task is made for it; small files share tasks, large
ones are cut. What must not be read is shown by overwriting it: a task that touched it would fail.
"""
import gzip
import json
import os
import pathlib

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import brantlib
import compare

GROUPS, ROWS = 20, 2048  # of ordered.parquet


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    d = tmp_path_factory.mktemp("scans")
    con = duckdb.connect()
    con.execute("SET threads = 1")
    con.execute(f"""COPY (SELECT i - 2048 AS i, (i * 1000000007)::BIGINT AS b, i::UBIGINT + 9223372036854775807::UBIGINT AS u,
        DATE '1969-12-01' + (i // 512)::INT AS d, TIMESTAMP '1969-12-31 23:00:00.123456' + INTERVAL (i) MINUTE AS t,
        ((i - 5000) / 8)::DECIMAL(9,3) AS p, (i - 5000)::DECIMAL(30,2) AS w,
        'k' || lpad((i // 100)::VARCHAR, 4, '0') AS s, CASE WHEN i % 1000 = 3 THEN 'nan'::DOUBLE ELSE i END AS f,
        CASE WHEN i // 2048 = 5 THEN NULL WHEN i % 3 = 0 THEN NULL ELSE i END AS n, {{'a': i}} AS st, i % 7 AS g, repeat('x', 40) || i AS pad
        FROM range({GROUPS * ROWS}) r(i)) TO '{d}/ordered.parquet' (ROW_GROUP_SIZE {ROWS}, COMPRESSION uncompressed)""")
    return d


@pytest.fixture(scope="module")
def session():
    # a split of a row group each
    with brantlib.Session(workers=3, threads=1, distribute="always", settings={"split_bytes": 1000, "partitions": 3, "TimeZone": "UTC"}) as s:
        yield s


@pytest.fixture(scope="module")
def plain():
    with brantlib.Session(workers=3, threads=1, distribute="always", settings={"TimeZone": "UTC"}) as s:
        yield s


def tasks(session, sql):
    """Tasks of the stages that scan."""
    return sum(s["tasks"] for s in json.loads(session.explain(sql, json=True))["stages"] if s["scans"])


def files_of(session, sql):
    return sum(len(scan["files"]) for s in json.loads(session.explain(sql, json=True))["stages"] for scan in s["scans"])


def check(session, *queries, ordered=False):
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    for sql in queries:
        table, stats = session.run(sql)
        assert stats.distributed, sql
        diff = compare.difference([tuple(c[i].as_py() for c in table.columns) for i in range(table.num_rows)], con.execute(sql).fetchall(), ordered)
        assert diff is None, f"{sql}\n   {diff}"


def spoil(path, column, group=None):
    """Overwrites the pages of a column, in one row group or in all."""
    data = bytearray(path.read_bytes())
    meta = pq.ParquetFile(path).metadata
    for g in range(meta.num_row_groups) if group is None else [group]:
        for c in range(meta.num_columns):
            chunk = meta.row_group(g).column(c)
            if column in (None, chunk.path_in_schema):
                start = min(x for x in (chunk.dictionary_page_offset, chunk.data_page_offset) if x)
                data[start:start + chunk.total_compressed_size] = b"\xee" * chunk.total_compressed_size
    path.write_bytes(bytes(data))


# ---- statistics of row groups

# condition, row groups that may hold such rows
PRUNED = [
    ("i = 4000", 1), ("i < 100", 2), ("i <= -2048", 1), ("i > 38000", 1), ("i >= 30000 AND i < 32000", 2), ("i BETWEEN 0 AND 2047", 1),
    ("i IN (5, 9000, 9001)", 2), ("i IN (-5, 30000)", 2), ("i < -1000 OR i > 38000", 2), ("i = 4000 AND g = 3", 1),
    ("b < 2048 * 1000000007::BIGINT", 1), ("u = 9223372036854775807", 1), ("u > 9223372036854816700", 1),
    ("d = DATE '1969-12-01'", 1), ("d >= DATE '1970-02-01'", 5), ("d < DATE '1970-01-01' AND i > 12000", 2),
    ("t < TIMESTAMP '1970-01-01'", 1), ("t = TIMESTAMP '1970-01-03 09:00:00.123456'", 1),
    ("p = -625", 1), ("p > 4480", 1), ("w < -2952.5", 1), ("w >= 35000", 1),
    ("s = 'k0050'", 1), ("s >= 'k0400'", 1), ("s IN ('k0000', 'k0100')", 2), ("n = 3000", 1), ("n > 40000", 1), ("n > 0", 19),
]
# and what can't be left out: values whose bounds say nothing, or which are not in the file
KEPT = ["f > 40000", "f = 'nan'", "abs(i) = 4000", "st.a < 5", "g = 3", "n IS NULL", "i <> 5", "s LIKE '%7'"]


@pytest.mark.parametrize("condition, groups", PRUNED)
def test_row_groups_out_of_range_are_not_scheduled(session, folder, condition, groups):
    source = f"'{folder}/ordered.parquet'"
    check(session, f"SELECT i, t, n FROM {source} WHERE {condition}", f"SELECT count(*), sum(b), max(s) FROM {source} WHERE {condition}")
    assert tasks(session, f"SELECT i, t FROM {source} WHERE {condition}") == groups


@pytest.mark.parametrize("condition", KEPT)
def test_what_statistics_do_not_tell_is_read(session, folder, condition):
    sql = f"SELECT i, n, f FROM '{folder}/ordered.parquet' WHERE {condition}"
    check(session, sql)
    assert tasks(session, sql) == GROUPS


def test_a_pruned_row_group_is_not_read(session, folder):
    path = folder / "spoiled_group.parquet"
    path.write_bytes((folder / "ordered.parquet").read_bytes())
    spoil(path, None, group=7)
    for condition in ("i < 10000", "i > 20000", "i NOT BETWEEN 12000 AND 16000 AND (i < 12000 OR i > 16000)"):
        got = session.run(f"SELECT count(*) AS n, sum(b) AS b FROM '{path}' WHERE {condition}")[0].to_pylist()
        want = duckdb.sql(f"SELECT count(*), sum(b) FROM '{folder}/ordered.parquet' WHERE {condition}").fetchone()
        assert (got[0]["n"], int(got[0]["b"])) == want
    with pytest.raises(brantlib.BrantError):
        session.run(f"SELECT sum(b) FROM '{path}'")


def test_what_is_left_is_shared_out(plain, folder):
    """A range of a sorted file lies in few row groups: they go to all slots, not to one."""
    sql = f"SELECT sum(b) FROM '{folder}/ordered.parquet' WHERE i BETWEEN 20000 AND 30000"
    check(plain, sql)
    assert tasks(plain, sql) == 3


def test_bounds_are_read_once_a_file(session, tmp_path):
    """A footer that is not readable any more, in a file that looks unchanged: who asked it again would know nothing. A file that is changed is
    another one."""
    for k in range(2):
        duckdb.sql(f"COPY (SELECT i, -i AS j FROM range({k * 20480}, {k * 20480 + 20480}) r(i)) TO '{tmp_path}/{k}.parquet' (ROW_GROUP_SIZE 2048)")
    source, path = f"'{tmp_path}/*.parquet'", tmp_path / "1.parquet"
    assert tasks(session, f"SELECT i FROM {source} WHERE i > 40000") == 1
    assert tasks(session, f"SELECT i FROM {source} WHERE j > -10") == 1
    good, stat = path.read_bytes(), path.stat()
    path.write_bytes(b"\xee" * (len(good) - 8) + good[-8:])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert tasks(session, f"SELECT i FROM {source} WHERE i > 39000") == 1
    assert tasks(session, f"SELECT i FROM {source} WHERE j < -39000 AND i > 100") == 1
    duckdb.sql(f"COPY (SELECT i, -i AS j FROM range(100000, 120480) r(i)) TO '{path}' (ROW_GROUP_SIZE 2048)")
    check(session, f"SELECT i FROM {source} WHERE i > 39000 AND i < 100010", f"SELECT i FROM {source} WHERE j BETWEEN -30000 AND -20470")
    assert tasks(session, f"SELECT i FROM {source} WHERE i > 39000 AND i < 100010") == 1


def test_nothing_is_left(session, folder):
    source = f"'{folder}/ordered.parquet'"
    for condition in ("i = 5 AND d = DATE '1970-01-08'", "s = 'k0001' AND i > 30000", "i BETWEEN 0 AND 10 AND i + 0 > 50 AND t > TIMESTAMP '1970-01-20'"):
        for what in ("i, t", "count(*), sum(b), min(s)", "g, count(*)"):
            check(session, f"SELECT {what} FROM {source} WHERE {condition}" + (" GROUP BY g" if what[0] == "g" else ""))
    assert tasks(session, f"SELECT i FROM {source} WHERE s = 'k0001' AND i > 30000") == 0
    check(session, f"SELECT a.g, b.n FROM (SELECT g, count(*) AS n FROM {source} GROUP BY g) a LEFT JOIN (SELECT g, n FROM {source} "
                   f"WHERE s = 'k0001' AND i > 30000) b USING (g)")


def test_files_that_store_a_column_otherwise(session, tmp_path):
    """Bounds count only where they mean what the plan compares: the second file's text is numbers there, its numbers are wider."""
    files = [{"a": pa.array(["10", "9", "100"]), "x": pa.array([1, 2, 3], pa.int32()), "d": pa.array([1, 2, 3], pa.int64())},
             {"a": pa.array([5, 70, 8], pa.int32()), "x": pa.array([7, 8, -9], pa.int64()), "d": pa.array([10, 20, 30], pa.int16())},
             {"a": pa.array(["7", None, "b"]), "x": pa.array([4, 5, 6], pa.int8()), "d": pa.array([None] * 3, pa.int32())}]
    for n, columns in enumerate(files, 1):
        pq.write_table(pa.table(columns), tmp_path / f"{n}.parquet")
    for options in ("", ", union_by_name = true"):
        source = f"read_parquet(['{tmp_path}/1.parquet', '{tmp_path}/2.parquet', '{tmp_path}/3.parquet']{options})"
        check(session, *(f"SELECT * FROM {source} WHERE {c}" for c in (
            "a > '8'", "a = '70'", "a < '2'", "a BETWEEN '6' AND '7z'", "x > 3", "x = 8", "x < 0", "d >= 10", "d = 3", "d IS NULL", "a > 'a' OR a = '5'")))


def test_blobs_are_no_text(session, tmp_path):
    pq.write_table(pa.table({"b": pa.array([b"a\x01", b"\xff\x00", b"\\x"]), "i": [1, 2, 3]}), tmp_path / "b.parquet", row_group_size=1)
    check(session, *(f"SELECT i FROM '{tmp_path}/b.parquet' WHERE b {c}" for c in ("= 'a\\x01'::BLOB", "> 'a'::BLOB", "< '\\xFF'::BLOB", ">= '\\x5C'::BLOB")))
    pq.write_table(pa.table({"b": pa.array([b"a\x01", b"aB", b"\\x", b"z"]), "i": [1, 2, 3, 4]}), tmp_path / "t.parquet", row_group_size=1)
    source = f"read_parquet('{tmp_path}/t.parquet', binary_as_string = true)"
    check(session, *(f"SELECT i FROM {source} WHERE b {c}" for c in ("< 'aB'", "= chr(92) || 'x'", "> 'a' AND b < 'b'", "= 'a' || chr(1)")))


# ---- columns

@pytest.mark.parametrize("name", ["file_row_number", "File_Row_Number", "filename", "file_index", "rowid"])
def test_columns_named_as_duckdbs_own(session, tmp_path, name):
    """Such a file can't be cut by the numbers of its rows."""
    for k in range(3):
        pq.write_table(pa.table({name: range(k * 1000, k * 1000 + 1000), "v": [k] * 1000}), tmp_path / f"{k}.parquet", row_group_size=100)
    source = f"'{tmp_path}/*.parquet'"
    check(session, f'SELECT count(*), sum("{name}"), sum(v) FROM {source}', f'SELECT * FROM {source} WHERE "{name}" BETWEEN 950 AND 1020',
          f'SELECT a."{name}", b.v FROM {source} a JOIN {source} b ON a."{name}" = b."{name}" WHERE a."{name}" % 100 = 7')
    assert tasks(session, f"SELECT v FROM {source}") >= 3


NAMES = (["A", "a", "A", "x"], ["\u00dc", "\u00fc", "x"], ["x", "x", "X"], ["s", "S", "s_1"])


@pytest.mark.parametrize("names", NAMES, ids=["-".join(n) for n in NAMES])
def test_columns_whose_names_meet(session, tmp_path, names):
    """One name twice, but for case: what one says of a row group says nothing of the other. (Beyond ASCII, case makes two names.)"""
    columns = [pa.array(range(n * 1000, n * 1000 + 300)) for n in range(len(names))]
    pq.write_table(pa.table(columns, names=names), tmp_path / "a.parquet", row_group_size=20)
    pq.write_table(pa.table({names[0]: range(500, 800)}), tmp_path / "b.parquet", row_group_size=20)
    pq.write_table(pa.table(columns[:1], names=["few"]), tmp_path / "few.parquet")
    for source in (f"'{tmp_path}/a.parquet'", f"read_parquet(['{tmp_path}/a.parquet', '{tmp_path}/b.parquet'], union_by_name = true)"):
        for name in duckdb.sql(f"FROM {source}").columns:
            check(session, *(f'SELECT * FROM {source} WHERE "{name}" {c}' for c in ("= 5", "= 1005", "> 2290", "BETWEEN 250 AND 1010", "IN (7, 1007, 2007)")))
            for offset in (0, 1000, 2000):  # run-time filters, too
                session.set("filter_bytes", "32MiB")
                keys = f"(SELECT few + {offset} AS k FROM '{tmp_path}/few.parquet' WHERE few < 9)"
                check(session, f'SELECT t.* FROM {source} t JOIN {keys} f ON t."{name}" = f.k')


def test_other_columns_are_not_read(session, folder):
    path = folder / "spoiled_column.parquet"
    path.write_bytes((folder / "ordered.parquet").read_bytes())
    spoil(path, "pad")
    spoil(path, "f")
    sql = "SELECT g, count(*) AS n, sum(i) AS s, max(t) AS t FROM '{}' WHERE st.a % 3 = 1 GROUP BY g ORDER BY g"
    got = session.run(sql.format(path))[0]
    assert list(zip(*(c.to_pylist() for c in got.columns))) == duckdb.sql(sql.format(folder / "ordered.parquet")).fetchall()
    with pytest.raises(brantlib.BrantError):
        session.run(f"SELECT max(pad) FROM '{path}'")


# ---- partitions in names of folders

@pytest.fixture(scope="module")
def hive(tmp_path_factory):
    d = tmp_path_factory.mktemp("hive")
    for year in (2022, 2023, 2024):
        for code in ("007", "x y", "__HIVE_DEFAULT_PARTITION__"):
            part = d / f"year={year}" / f"code={code}"
            part.mkdir(parents=True)
            for k in range(2):
                duckdb.sql(f"COPY (SELECT {year} * 100 + i AS id, i % 3 AS k, 1900 AS hidden FROM range({k * 50}, {k * 50 + 50}) r(i)) "
                           f"TO '{part}/{k}.parquet'")
    return d


def test_pruned_partitions_are_not_scheduled(session, hive, tmp_path):
    source = f"read_parquet('{hive}/*/*/*.parquet', hive_partitioning = true)"
    for condition, files in [("year = 2023", 6), ("year > 2022 AND code = '007'", 4), ("code IS NULL", 6), ("year IN (2022, 2024)", 12),
    ("year = 2023 AND k = 1", 6),
                             ("code LIKE 'x%'", 6), ("year % 2 = 1", 6), ("id > 0", 18)]:
        sql = f"SELECT * FROM {source} WHERE {condition}"
        check(session, sql, f"SELECT year, code, count(*), sum(id) FROM {source} WHERE {condition} GROUP BY ALL")
        assert files_of(session, sql) == files and 0 < tasks(session, sql) <= files, condition
    check(session, f"SELECT * FROM {source} WHERE year = 1999", f"SELECT count(*) FROM {source} WHERE code = 'none'")


def test_a_pruned_file_is_not_read(session, hive):
    bad = hive / "year=2025" / "code=007"
    bad.mkdir(parents=True)
    (bad / "0.parquet").write_bytes(b"no Parquet at all")
    try:
        sql = f"SELECT count(*) AS n FROM read_parquet('{hive}/*/*/*.parquet', hive_partitioning = true) WHERE year < 2025"
        assert session.run(sql)[0].to_pylist() == [{"n": 900}]
        with pytest.raises(brantlib.BrantError):
            session.run(sql.replace("year < 2025", "year < 2026"))
    finally:
        (bad / "0.parquet").unlink()
        bad.rmdir()
        bad.parent.rmdir()


def test_types_of_partitions(session, hive):
    """A task's few files would give the folder's names other types: 007 alone looks like a number."""
    for options in ("", ", hive_types = {'year': VARCHAR}", ", hive_types = {'year': SMALLINT, 'code': VARCHAR}", ", hive_types_autocast = false"):
        source = f"read_parquet('{hive}/*/*/*.parquet', hive_partitioning = true{options})"
        check(session, f"SELECT year, code, typeof(year), typeof(code), count(*) FROM {source} GROUP BY ALL", f"SELECT max(code), min(year) FROM {source}",
              f"SELECT id FROM {source} WHERE code = '007' AND k = 2")


def test_a_folder_name_hides_a_column(session, hive, tmp_path):
    """The file's own column of that name, and its bounds, don't count."""
    for value in (1, 2):
        (tmp_path / f"hidden={value}").mkdir()
        duckdb.sql(f"COPY (SELECT 1900 AS hidden, i FROM range(5000) r(i)) TO '{tmp_path}/hidden={value}/a.parquet' (ROW_GROUP_SIZE 2048)")
    source = f"read_parquet('{tmp_path}/*/a.parquet', hive_partitioning = true)"
    check(session, f"SELECT hidden, count(*) FROM {source} GROUP BY ALL", f"SELECT count(*) FROM {source} WHERE hidden = 2",
          f"SELECT count(*) FROM {source} WHERE hidden = 1900")


# ---- many small files, one large one, none with rows

def test_small_files_share_tasks(plain, tmp_path):
    for i in range(1000):
        pq.write_table(pa.table({"i": [i, -i], "s": [f"row {i}", None]}), tmp_path / f"{i:04}.parquet")
    source = f"'{tmp_path}/*.parquet'"
    check(plain, f"SELECT count(*), sum(i), count(DISTINCT s) FROM {source}", f"SELECT i, s FROM {source} WHERE i % 100 = 7")
    assert tasks(plain, f"SELECT i FROM {source}") <= 12  # three slots


@pytest.mark.parametrize("kind, text", [("csv", "i,s\n{0},row {0}\n-{0},\n"), ("ndjson", '{{"i": {0}, "s": "row {0}"}}\n{{"i": -{0}}}\n')])
def test_small_texts_share_tasks(plain, tmp_path, kind, text):
    for i in range(1000):
        (tmp_path / f"{i:04}.{kind}").write_text(text.format(i + 1))
    source = f"'{tmp_path}/*.{kind}'"
    check(plain, f"SELECT count(*), sum(i), count(DISTINCT s) FROM {source}")
    assert tasks(plain, f"SELECT i FROM {source}") <= 12


def test_one_large_file_is_cut(plain, tmp_path):
    """Of 24 MB, in row groups of about 1 MB."""
    con = duckdb.connect()
    con.execute(f"COPY (SELECT i, hash(i) AS h FROM range(2600000) r(i)) TO '{tmp_path}/large.parquet' (ROW_GROUP_SIZE 100000, COMPRESSION uncompressed)")
    assert pathlib.Path(f"{tmp_path}/large.parquet").stat().st_size > 20 << 20
    sql = f"SELECT count(*), sum(i), bit_xor(h) FROM '{tmp_path}/large.parquet'"
    check(plain, sql)
    assert tasks(plain, sql) >= 3
    plain.set("split_bytes", 1 << 20)
    try:
        check(plain, sql)
        assert tasks(plain, sql) >= 20
    finally:
        plain.run("RESET split_bytes")


def test_a_task_is_worth_its_start(plain, tmp_path):
    """By the bytes of the columns that are read, or by the rows; and not where each task would read as much again beside its split."""
    con, n = duckdb.connect(), 800_000
    con.execute(f"""COPY (SELECT i % 5 AS narrow, i AS k, repeat('x', 60) || i AS wide FROM range({n}) t(i))
        TO '{tmp_path}/t.parquet' (COMPRESSION uncompressed, ROW_GROUP_SIZE 20480)""")
    con.execute(f"COPY (SELECT i // 3000000 AS k FROM range(12000000) t(i)) TO '{tmp_path}/many.parquet'")
    con.execute(f"""COPY (SELECT i AS k, repeat('y', 60) || i AS name FROM range(100000) t(i))
        TO '{tmp_path}/beside.parquet' (COMPRESSION uncompressed)""")
    t, many, beside = (f"'{tmp_path}/{x}.parquet'" for x in ("t", "many", "beside"))
    wide = f"SELECT max(wide), count(*) FROM {t}"
    assert tasks(plain, f"SELECT sum(narrow) FROM {t}") == 3  # one a slot
    assert tasks(plain, wide) > 5
    assert tasks(plain, f"SELECT sum(k) FROM {many}") > 5
    joined = f"SELECT max(wide), max(name) FROM {t} t JOIN {beside} b USING (k)"
    assert tasks(plain, joined) <= 4  # the other file may be broadcast
    check(plain, wide, f"SELECT sum(narrow) FROM {t}", joined)


def test_packed_texts_are_one_part_each(session, tmp_path):
    for i in range(4):
        rows = range(i * 3000, i * 3000 + 3000)
        (tmp_path / f"{i}.csv.gz").write_bytes(gzip.compress(("k,v\n" + "".join(f"{n},{n * n % 89}\n" for n in rows)).encode()))
        (tmp_path / f"{i}.ndjson.gz").write_bytes(gzip.compress("".join(f'{{"k": {n}, "v": {n * n % 89}}}\n' for n in rows).encode()))
    for kind in ("csv", "ndjson"):
        sql = f"SELECT v, count(*), sum(k) FROM '{tmp_path}/*.{kind}.gz' GROUP BY v"
        check(session, sql)
        assert tasks(session, sql) == 4


def test_empty_scans_are_not_scheduled(session, tmp_path):
    for i in range(3):
        pq.write_table(pa.table({"i": pa.array([], pa.int64()), "s": pa.array([], pa.string())}), tmp_path / f"{i}.parquet")
    source = f"'{tmp_path}/*.parquet'"
    for sql in (f"SELECT * FROM {source}", f"SELECT count(*), sum(i), max(s) FROM {source}", f"SELECT s, count(*) FROM {source} GROUP BY s",
                f"SELECT a.i FROM {source} a JOIN {source} b USING (i)", f"SELECT i, row_number() OVER (PARTITION BY s) FROM {source}"):
        check(session, sql)
        assert tasks(session, sql) == 0
    pq.write_table(pa.table({"i": [1], "s": ["x"]}), tmp_path / "3.parquet")
    check(session, f"SELECT * FROM {source}")
    assert tasks(session, f"SELECT * FROM {source}") == 1


# ---- tables of attached files

def test_tables_are_cut_by_row_ids(session, tmp_path):
    con = duckdb.connect()
    con.execute(f"ATTACH '{tmp_path}/store.duckdb' AS st")
    con.execute("CREATE TABLE st.t AS SELECT i, i % 97 AS k, 'v' || i AS s FROM range(500000) r(i)")
    con.execute("DELETE FROM st.t WHERE i BETWEEN 100000 AND 300000 OR i % 5 = 0")
    con.execute("CREATE TABLE st.none (a INT)")
    con.execute("CREATE SCHEMA st.other")
    con.execute("CREATE TABLE st.other.t AS SELECT range AS i FROM range(10)")
    con.execute("DETACH st")
    session.run(f"ATTACH '{tmp_path}/store.duckdb' AS st (READ_ONLY)")
    con.execute(f"ATTACH '{tmp_path}/store.duckdb' AS st (READ_ONLY)")
    for sql in ("SELECT count(*), sum(i), max(s) FROM st.t", "SELECT k, count(*) FROM st.t WHERE i > 250000 GROUP BY k", "SELECT count(*) FROM st.none",
                "SELECT a.k, count(*) FROM st.t a JOIN st.other.t b ON a.k = b.i GROUP BY a.k",
                "SELECT i, s FROM st.t WHERE i IN (1, 99999, 300001, 499999)"):
        table, stats = session.run(sql)
        got = list(zip(*(c.to_pylist() for c in table.columns)))
        assert compare.difference(got, con.execute(sql).fetchall(), False) is None, sql
        assert stats.distributed
    assert tasks(session, "SELECT i FROM st.t") >= 3
