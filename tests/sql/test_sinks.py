# SPDX-License-Identifier: Apache-2.0
"""COPY … TO: each format, partitioned, split, ordered, over existing targets. What was written is read back by DuckDB and compared with
the query's own rows; the answer must name each file with its true rows and bytes."""
import csv
import glob
import json
import os
import pathlib
import subprocess
import threading
import time

import brantlib
import duckdb
import pytest

ROWS = 40_000
SOURCE = f"""SELECT i AS id, i % 7 AS k, CASE WHEN i % 11 = 0 THEN NULL ELSE 'r' || (i % 5) || CASE WHEN i % 13 = 0 THEN E',"x"\\n;' ELSE '' END END AS s,
  (i * 37 % 1000) / 8 AS d, DATE '2024-01-01' + (i % 300)::INTEGER AS day FROM range({ROWS}) t(i)"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Six Parquet files: several tasks a scan."""
    d = tmp_path_factory.mktemp("data")
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS {SOURCE}")
    for f in range(6):
        con.execute(f"COPY (SELECT * FROM t WHERE id % 6 = {f}) TO '{d}/{f}.parquet' (FORMAT parquet)")
    return d


@pytest.fixture(scope="module")
def query(data):
    return f"SELECT id, k, s, d, day FROM '{data}/*.parquet'"


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not (got := condition()):
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.01)
    return got


def run(session, sql):
    return session.run(sql)[0].to_pylist()


def copy(session, what, target, options=""):
    """The list of files as dicts."""
    return run(session, f"COPY ({what}) TO '{target}'{f' ({options})' if options else ''}")


def files_below(target):
    return sorted(str(p.relative_to(target)) for p in pathlib.Path(target).rglob("*") if p.is_file() or p.name.startswith(".brant"))


def reader(format, files):
    names = [str(f) for f in files]
    if format == "parquet":
        return f"read_parquet({names}, hive_partitioning=true)"
    if format == "csv":
        return f"read_csv({names}, hive_partitioning=true, header=true, nullstr='', quote='\"')"
    return f"read_json({names}, hive_partitioning=true)"


def check_list(listed, target, format):
    """The list is what is there: names, sizes, rows."""
    assert sorted(f["file"] for f in listed) == files_below(target)
    for f in listed:
        path = pathlib.Path(target, f["file"])
        assert f["bytes"] == path.stat().st_size
        got = duckdb.sql(f"SELECT count(*) FROM {reader(format, [path])}").fetchone()[0]
        assert f["rows"] == got, f
        assert path.name.startswith("part-")


COLUMNS = "id::BIGINT AS id, k::BIGINT AS k, s::VARCHAR AS s, d::DOUBLE AS d, day::DATE AS day"


def same_rows(query, format, target, listed):
    files = [pathlib.Path(target, f["file"]) for f in listed]
    want = duckdb.sql(f"SELECT {COLUMNS} FROM ({query}) ORDER BY id").fetchall()
    got = duckdb.sql(f"SELECT {COLUMNS} FROM {reader(format, files)} ORDER BY id").fetchall()
    assert got == want


# ---- directories


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
@pytest.mark.parametrize("options", ["PER_THREAD_OUTPUT", "FILE_SIZE_BYTES '50KB'", "slash"])
def test_formats(workers, query, tmp_path, format, options):
    target = f"{tmp_path}/out" + ("/" if options == "slash" else "")
    more = "" if options == "slash" else f", {options}"
    if "SIZE" in options and format == "parquet":
        more += ", ROW_GROUP_SIZE 2048"
    listed = copy(workers, query, target, f"FORMAT {format}{more}")
    assert len(listed) > (3 if "SIZE" in options else 2)
    check_list(listed, target, format)
    same_rows(query, format, target, listed)
    assert sum(f["rows"] for f in listed) == ROWS


@pytest.mark.parametrize("format, size", [("parquet", 100_000), ("parquet", 300_000), ("csv", 100_000), ("json", 1_000_000)])
@pytest.mark.parametrize("where", ["workers", "here", "ordered"])
def test_sizes_of_files(workers, query, tmp_path, format, size, where):
    """Near what was asked for: none much larger, and in what a task writes only the last one smaller."""
    many = f"SELECT q.*, r, hash(id, r) AS h FROM ({query}) q, range(5) t(r)" + (" ORDER BY h" if where == "ordered" else "")
    session = workers if where != "here" else brantlib.Session(workers=1, distribute="never")
    listed = copy(session, many, f"{tmp_path}/out", f"FORMAT {format}, FILE_SIZE_BYTES {size}")
    if where == "here":
        session.close()
    check_list(listed, tmp_path / "out", format)
    assert sum(f["rows"] for f in listed) == 5 * ROWS
    last = {f["file"].rsplit("-", 1)[0]: f["file"] for f in sorted(listed, key=lambda f: f["file"])}
    sizes = [f["bytes"] for f in listed if f["file"] not in last.values()]
    assert sizes and min(sizes) >= size * 0.9 and max(f["bytes"] for f in listed) <= size * 1.5, sorted(sizes)


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_partitioned(workers, query, tmp_path, format):
    target = tmp_path / "out"
    by = "(k, u)" if format == "csv" else "k"
    listed = copy(workers, f"SELECT *, id % 3 AS u FROM ({query})", target, f"FORMAT {format}, PARTITION_BY {by}")
    check_list(listed, target, format)
    same_rows(query, format, target, listed)
    for f in listed:
        values = dict(f["partition"])
        assert f["file"].startswith("/".join(f"{k}={v}" for k, v in values.items()) + "/part-")
    assert {dict(f["partition"])["k"] for f in listed} == {str(k) for k in range(7)}


def test_strange_partition_values(workers, tmp_path):
    """Nulls, empty texts, slashes, percent signs, quotes and non-ASCII in values and in a name."""
    values = [None, "", "a/b", "50%", "%2F", "it's", 'say "hi"', "é ü", "x=y", ".", "..", "a\nb", "-"]
    con = duckdb.connect()
    con.execute("CREATE TABLE t(v INTEGER, \"the key/x\" VARCHAR)")
    con.executemany("INSERT INTO t VALUES (?, ?)", [(i, v) for i, v in enumerate(values) for _ in range(3)])
    con.execute(f"COPY t TO '{tmp_path}/in.parquet'")
    listed = copy(workers, f"SELECT * FROM '{tmp_path}/in.parquet'", tmp_path / "out", "FORMAT parquet, PARTITION_BY (\"the key/x\")")
    assert sorted(f["file"] for f in listed) == files_below(tmp_path / "out")
    got = {f["partition"][0][1] for f in listed}
    assert got == set(values)
    assert {f["partition"][0][0] for f in listed} == {"the key/x"}
    assert sum(f["rows"] for f in listed) == 3 * len(values)
    back = duckdb.sql(f"SELECT v, count(*) FROM '{tmp_path}/out/**/*.parquet' GROUP BY v ORDER BY v").fetchall()
    assert back == [(i, 3) for i in range(len(values))]


@pytest.mark.parametrize("format,options", [("parquet", "PER_THREAD_OUTPUT"), ("csv", "FILE_SIZE_BYTES 100000"), ("json", "FILE_SIZE_BYTES 100000"),
                                            ("parquet", "FILE_SIZE_BYTES 20000, ROW_GROUP_SIZE 2048")])
def test_order_by_name(query, tmp_path, format, options):
    """Files read in the order of their names give the rows in the order of the query, also with several threads a worker."""
    with brantlib.Session(workers=2, threads=2, distribute="always", settings={"partitions": 5, "sort_one_task_rows": 0}) as s:
        listed = copy(s, f"{query} ORDER BY d DESC, id", tmp_path / "out", f"FORMAT {format}, {options}")
    assert len({f["file"][:10] for f in listed}) == 5, "one task of five has no rows"
    names = [f["file"] for f in listed]
    assert names == sorted(names)
    check_list(listed, tmp_path / "out", format)
    got = duckdb.sql(f"SELECT id::BIGINT FROM {reader(format, [tmp_path / 'out' / n for n in names])}").fetchall()
    assert got == duckdb.sql(f"SELECT id FROM ({query}) ORDER BY d DESC, id").fetchall()


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_no_rows(workers, query, tmp_path, format):
    """One file with the columns, so that it can be read; none if it is partitioned, or if that was asked for."""
    none = f"{query} WHERE id < 0"
    listed = copy(workers, none, tmp_path / "a", f"FORMAT {format}, PER_THREAD_OUTPUT")
    assert [f["rows"] for f in listed] == [0]
    assert files_below(tmp_path / "a") == [listed[0]["file"]]
    if format != "json":
        assert duckdb.sql(f"SELECT * FROM {reader(format, [tmp_path / 'a' / listed[0]['file']])}").columns == ["id", "k", "s", "d", "day"]
    assert copy(workers, none, f"{tmp_path}/b/", f"FORMAT {format}, WRITE_EMPTY_FILE false") == []
    assert files_below(tmp_path / "b") == []
    if format != "json":
        assert copy(workers, none, tmp_path / "c", f"FORMAT {format}, PARTITION_BY k") == []


def test_no_tasks(workers, tmp_path):
    """A source without rows is not even scanned; its columns are written nevertheless."""
    duckdb.sql("SELECT 1 AS a, 'x' AS \"b c\" LIMIT 0").write_parquet(f"{tmp_path}/in.parquet")
    for format in ("parquet", "csv"):
        listed = copy(workers, f"SELECT * FROM '{tmp_path}/in.parquet'", tmp_path / format, f"FORMAT {format}, PER_THREAD_OUTPUT")
        assert [f["rows"] for f in listed] == [0]
        assert duckdb.sql(f"SELECT * FROM {reader(format, [tmp_path / format / listed[0]['file']])}").columns == ["a", "b c"]
    assert copy(workers, f"SELECT * FROM '{tmp_path}/in.parquet'", tmp_path / "x.csv")[0]["rows"] == 0
    assert (tmp_path / "x.csv").read_text() == "a,b c\n"


def test_few_rows_make_few_files(workers, query, tmp_path):
    listed = copy(workers, f"{query} WHERE id = 5", tmp_path / "a", "FORMAT parquet, PER_THREAD_OUTPUT")
    assert [f["rows"] for f in listed] == [1]


def test_options_reach_the_writer(workers, query, tmp_path):
    options = "FORMAT csv, PER_THREAD_OUTPUT, HEADER false, DELIMITER '|', NULLSTR 'nix', FILE_EXTENSION 'txt'"
    listed = copy(workers, f"{query} WHERE id < 100", tmp_path / "a", options)
    assert all(f["file"].endswith(".txt") for f in listed)
    rows = []
    for f in listed:
        with open(tmp_path / "a" / f["file"], newline="") as h:
            rows += list(csv.reader(h, delimiter="|"))
    assert len(rows) == 100 == sum(f["rows"] for f in listed)
    assert {r[2] for r in rows if int(r[0]) % 11 == 0} == {"nix"}
    listed = copy(workers, query, tmp_path / "b", "FORMAT parquet, PER_THREAD_OUTPUT, COMPRESSION zstd, ROW_GROUP_SIZE 2048")
    meta = duckdb.sql(f"SELECT count(DISTINCT (file_name, row_group_id)), any_value(compression) FROM parquet_metadata('{tmp_path}/b/*')").fetchone()
    assert meta[0] >= ROWS / 2048 and meta[1] == "ZSTD"
    listed = copy(workers, query, tmp_path / "c", "FORMAT json, ARRAY true, FILE_SIZE_BYTES 100000")
    check_list(listed, tmp_path / "c", "json")
    listed = copy(workers, query, tmp_path / "d", "FORMAT csv, COMPRESSION gzip, PER_THREAD_OUTPUT")
    assert all(f["file"].endswith(".csv.gz") for f in listed)
    assert sum(f["rows"] for f in listed) == ROWS
    same_rows(query, "csv", tmp_path / "d", listed)
    listed = copy(workers, query, tmp_path / "e", "FORMAT csv, QUOTE '!', ESCAPE '\\', FILE_SIZE_BYTES 100000")
    assert sum(f["rows"] for f in listed) == ROWS and len(listed) > 6


def test_partition_columns_may_be_written(workers, query, tmp_path):
    listed = copy(workers, query, tmp_path / "a", "FORMAT parquet, PARTITION_BY k, WRITE_PARTITION_COLUMNS true")
    assert "k" in duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path / 'a' / listed[0]['file']}', hive_partitioning=false)").columns


def test_types_names_and_enums(workers, tmp_path):
    con = duckdb.connect()
    con.execute(f"""COPY (SELECT ['a', 'b'][1 + i % 2]::ENUM('a', 'b') AS "an enum", i::HUGEINT AS h, i::DECIMAL(12, 3) AS "d""q", [i, NULL] AS l,
      {{'x': i, 'y': 'z'}} AS st, MAP {{'k': i}} AS m, TIMESTAMP '2024-01-01 00:00:00' AS ts, i % 2 = 0 AS b FROM range(100) t(i))
      TO '{tmp_path}/in.parquet'""")
    q = f"SELECT (CASE WHEN h % 2 = 0 THEN 'a' ELSE 'b' END)::ENUM('a', 'b') AS \"an enum\", * EXCLUDE \"an enum\", h AS h FROM '{tmp_path}/in.parquet'"
    listed = copy(workers, q, tmp_path / "out", "FORMAT parquet, PER_THREAD_OUTPUT")
    con.execute(f"COPY ({q}) TO '{tmp_path}/want.parquet'")
    # the same file that one DuckDB writes, to the types of its schema
    describe = "SELECT name, type, repetition_type, converted_type FROM parquet_schema('{}') ORDER BY ALL"
    assert con.execute(describe.format(tmp_path / "out" / listed[0]["file"])).fetchall() == con.execute(describe.format(tmp_path / "want.parquet")).fetchall()
    got, want = (con.execute(f"SELECT * FROM '{p}' ORDER BY h").fetchall() for p in (f"{tmp_path}/out/*.parquet", f"{tmp_path}/want.parquet"))
    assert got == want


# ---- what is copied


def test_views_tables_and_columns(workers, data, tmp_path):
    workers.run(f"CREATE OR REPLACE VIEW \"my view\" AS SELECT * FROM '{data}/*.parquet'")
    target = tmp_path / "v"
    listed = run(workers, f"COPY \"my view\" TO '{target}' (FORMAT parquet, PER_THREAD_OUTPUT)")
    assert sum(f["rows"] for f in listed) == ROWS and len(listed) > 1
    listed = run(workers, f"COPY \"my view\" (k, id) TO '{tmp_path}/c/' WITH (FORMAT parquet) -- the end")
    assert duckdb.sql(f"SELECT * FROM '{tmp_path}/c/*.parquet'").columns == ["k", "id"]
    workers.run("CREATE OR REPLACE TABLE here AS SELECT 42 AS a")
    assert run(workers, f"COPY here TO '{tmp_path}/t/' (FORMAT csv)")[0]["rows"] == 1
    workers.run("DROP TABLE here")
    con = duckdb.connect(str(tmp_path / "db.duckdb"))
    con.execute("CREATE TABLE big AS SELECT i FROM range(300000) t(i)")
    con.close()
    workers.run(f"ATTACH '{tmp_path}/db.duckdb' AS d")
    listed = run(workers, f"COPY d.big TO '{tmp_path}/d/' (FORMAT parquet)")
    assert sum(f["rows"] for f in listed) == 300000
    workers.run("DETACH d")


def test_joins_and_groups(workers, query, tmp_path):
    q = f"SELECT a.k, count(*) AS n, sum(b.d) AS s FROM ({query}) a JOIN ({query}) b USING (id) GROUP BY a.k"
    copy(workers, q, tmp_path / "o", "FORMAT parquet, PER_THREAD_OUTPUT")
    assert duckdb.sql(f"SELECT * FROM '{tmp_path}/o/*.parquet' ORDER BY k").fetchall() == duckdb.sql(f"{q} ORDER BY k").fetchall()


@pytest.mark.parametrize("mode", ["staged", "eager"])
@pytest.mark.parametrize("options", ["PER_THREAD_OUTPUT", "PARTITION_BY k"])
def test_tasks_in_passes(query, tmp_path, mode, options):
    """A task that runs in passes has the files of each."""
    q = f"SELECT id, any_value(k) AS k, max(d) AS d FROM ({query}) GROUP BY id"
    settings = {"task_passes": 3, "partitions": 4, "two_step_aggregate": "false"}
    with brantlib.Session(workers=2, distribute="always", mode=mode, settings=settings) as s:
        listed = copy(s, q, tmp_path / "o", f"FORMAT parquet, {options}")
    assert len(listed) >= 12 and sum(f["rows"] for f in listed) == ROWS
    check_list(listed, tmp_path / "o", "parquet")
    back = f"SELECT id, k::INTEGER AS k, d FROM read_parquet('{tmp_path}/o/**/*.parquet', hive_partitioning=true)"
    assert duckdb.sql(f"{back} ORDER BY id").fetchall() == duckdb.sql(f"SELECT id, k, d FROM ({query}) ORDER BY id").fetchall()


@pytest.mark.parametrize("settings", [{}, {"shuffle_backend": "files"}])
@pytest.mark.parametrize("mode", ["staged", "eager"])
def test_modes_and_backends(query, tmp_path, mode, settings):
    (tmp_path / "shuffle").mkdir()
    settings = {**settings, "shuffle_dir": tmp_path / "shuffle"} if settings else settings
    q = f"SELECT id, k, s, d, day FROM ({query}) JOIN (SELECT id AS other FROM ({query})) ON id = other"
    with brantlib.Session(workers=3, distribute="always", mode=mode, settings=settings) as s:
        listed = copy(s, q, tmp_path / "o", "FORMAT parquet, PARTITION_BY k")
        check_list(listed, tmp_path / "o", "parquet")
        same_rows(query, "parquet", tmp_path / "o", listed)
        assert copy(s, f"{q} ORDER BY id", tmp_path / "x.csv")[0]["rows"] == ROWS
    assert list((tmp_path / "shuffle").iterdir()) == []


# ---- existing targets


def test_overwrite_append(workers, query, tmp_path):
    target = tmp_path / "out"
    first = copy(workers, query, target, "FORMAT parquet, PER_THREAD_OUTPUT")
    with pytest.raises(brantlib.BrantError, match="not empty"):
        copy(workers, query, target, "FORMAT parquet, PER_THREAD_OUTPUT")
    assert files_below(target) == sorted(f["file"] for f in first)
    more = copy(workers, query, target, "FORMAT parquet, PER_THREAD_OUTPUT, APPEND")
    again = copy(workers, query, target, "FORMAT parquet, PER_THREAD_OUTPUT, OVERWRITE_OR_IGNORE true")
    assert files_below(target) == sorted(f["file"] for f in first + more + again)
    assert duckdb.sql(f"SELECT count(*) FROM '{target}/*.parquet'").fetchone()[0] == 3 * ROWS
    (target / "k=1").mkdir()
    (target / "k=1" / "old.parquet").write_text("x")
    last = copy(workers, query, target, "FORMAT parquet, PARTITION_BY k, OVERWRITE")
    assert files_below(target) == sorted(f["file"] for f in last)


def test_overwrite_what_is_read(workers, query, tmp_path):
    target = tmp_path / "out"
    copy(workers, query, target, "FORMAT parquet, PER_THREAD_OUTPUT")
    copy(workers, f"SELECT id + 1 AS id FROM '{target}/*.parquet'", target, "FORMAT parquet, PER_THREAD_OUTPUT, OVERWRITE")
    assert duckdb.sql(f"SELECT count(*), min(id), max(id) FROM '{target}/*.parquet'").fetchone() == (ROWS, 1, ROWS)


def test_failures_leave_nothing(workers, query, tmp_path):
    """A user's error in a late row: the old files stay, no new one, no staging directory, and one message."""
    target = tmp_path / "out"
    bad = f"SELECT id, CASE WHEN id = {ROWS - 1} THEN error('row of doom') ELSE s END AS s FROM ({query})"
    with pytest.raises(brantlib.BrantError, match="row of doom"):
        copy(workers, bad, target, "FORMAT parquet, PER_THREAD_OUTPUT")
    assert not target.exists()
    first = copy(workers, query, target, "FORMAT parquet, PER_THREAD_OUTPUT")
    for options in ("FORMAT csv, PARTITION_BY id, OVERWRITE", "FORMAT json, FILE_SIZE_BYTES 1000, OVERWRITE"):
        with pytest.raises(brantlib.BrantError, match="row of doom"):
            copy(workers, bad, target, options)
    assert files_below(target) == sorted(f["file"] for f in first)


def test_bad_targets(workers, query, tmp_path):
    (tmp_path / "file").write_text("x")
    for target, options, text in [(tmp_path / "file", "FORMAT csv, PER_THREAD_OUTPUT", "is a file"), (tmp_path, "FORMAT csv", "end its name with a slash"),
                                  ("/proc/nowhere/x", "FORMAT csv, PER_THREAD_OUTPUT", "/proc/nowhere"),
                                  (f"{tmp_path}/no/such/x.csv", "FORMAT csv", "no/such"), ("", "FORMAT csv", "empty"),
                                  ("s3://bucket/x.parquet", "FORMAT parquet", "object stores"), ("s3://bucket/x/", "FORMAT parquet", "object stores")]:
        with pytest.raises(brantlib.BrantError) as e:
            copy(workers, query, target, options)
        assert text in e.value.message, e.value
    for options, text in [("FORMAT csv, PER_THREAD_OUTPUT, FILENAME_PATTERN 'x'", "FILENAME_PATTERN"),
                          ("FORMAT parquet, NO_SUCH_OPTION 3", "(?i)no_such_option"),
                          ("FORMAT json, PARTITION_BY k", "(?i)partition_by"), ("FORMAT parquet, PARTITION_BY nix", "nix")]:
        with pytest.raises(brantlib.BrantError, match=text):
            copy(workers, query, tmp_path / "out", options)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


# ---- one file


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.json", "x.csv.gz", "a b%'\u00e9.parquet"])
def test_one_file(workers, query, tmp_path, name):
    target = str(tmp_path / name).replace("'", "''")
    listed = copy(workers, f"{query} ORDER BY d, id", target)
    path = tmp_path / name
    assert listed == [{"file": str(path), "rows": ROWS, "bytes": path.stat().st_size}]
    assert [p.name for p in tmp_path.iterdir()] == [name]
    got = duckdb.sql(f"SELECT id::BIGINT FROM '{target}'").fetchall()
    assert got == duckdb.sql(f"SELECT id FROM ({query}) ORDER BY d, id").fetchall()


def test_one_file_is_replaced_at_the_end(workers, query, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("old")
    with pytest.raises(brantlib.BrantError, match="row of doom"):
        copy(workers, f"SELECT CASE WHEN id = {ROWS - 1} THEN error('row of doom') ELSE s END AS s FROM ({query})", path)
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1
    copy(workers, f"{query} LIMIT 3", path, "HEADER false")
    assert path.read_text() != "old" and len(list(tmp_path.iterdir())) == 1


def test_a_pipe_is_a_target(workers, query, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    t = threading.Thread(target=lambda: got.append(pipe.read_text()))
    t.start()
    copy(workers, f"SELECT id FROM ({query}) WHERE id < 3 ORDER BY id", pipe, "FORMAT csv")
    t.join(20)
    assert got == ["id\n0\n1\n2\n"]


def test_here_and_there_are_alike(query, tmp_path):
    """A query that runs in the caller's process writes files of the same names."""
    with brantlib.Session(workers=1, distribute="never") as s:
        listed = copy(s, query, tmp_path / "a", "FORMAT parquet, PARTITION_BY k")
        check_list(listed, tmp_path / "a", "parquet")
        same_rows(query, "parquet", tmp_path / "a", listed)
        listed = copy(s, f"{query} ORDER BY d, id", tmp_path / "b", "FORMAT csv, FILE_SIZE_BYTES 100000")
        check_list(listed, tmp_path / "b", "csv")
        got = duckdb.sql(f"SELECT id::BIGINT FROM {reader('csv', [tmp_path / 'b' / f['file'] for f in listed])}").fetchall()
        assert got == duckdb.sql(f"SELECT id FROM ({query}) ORDER BY d, id").fetchall()
        assert copy(s, query, tmp_path / "x.parquet")[0]["rows"] == ROWS
        with pytest.raises(brantlib.BrantError, match="doom"):
            copy(s, f"SELECT error('doom') FROM ({query})", tmp_path / "c", "FORMAT csv, PER_THREAD_OUTPUT")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "x.parquet"]


# ---- the way it is told


def test_home_is_where_duckdb_has_it(query, tmp_path):
    """~ in a target: DuckDB's home_directory, else HOME; a name that only begins with ~ is a name."""
    run = [str(brantlib.BUILD / "brant"), "sql", "--workers", "1", "--distribute", "always"]
    (tmp_path / "home").mkdir()
    (tmp_path / "set").mkdir()
    for home, settings in [("home", []), ("set", ["--set", f"home_directory={tmp_path}/set"])]:
        for target in ("x.csv", "d/"):
            r = subprocess.run([*run, *settings, f"COPY ({query} LIMIT 3) TO '~/{target}' (FORMAT csv)"], capture_output=True, text=True, timeout=60,
                               cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path / "home")})
            assert r.returncode == 0, r.stderr
        assert sorted(p.name for p in (tmp_path / home).iterdir()) == ["d", "x.csv"]
    r = subprocess.run([*run, f"COPY ({query} LIMIT 3) TO '~x.csv'"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home", "set", "~x.csv"]


def test_stats_and_command_line(query, tmp_path):
    run = [str(brantlib.BUILD / "brant"), "sql", "--workers", "3", "--distribute", "always"]
    sql = f"COPY ({query}) TO '{tmp_path}/a' (FORMAT parquet, PARTITION_BY k)"
    r = subprocess.run([*run, "--format", "json", "--stats", sql], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    listed = [json.loads(line) for line in r.stdout.splitlines()]
    assert sorted(f["file"] for f in listed) == files_below(tmp_path / "a")
    assert listed[0].keys() == {"file", "rows", "bytes", "partition"} and listed[0]["partition"] == {"k": "0"}
    assert f"{ROWS} rows in" in r.stderr
    r = subprocess.run([*run, f"COPY ({query}) TO 'b/' (FORMAT csv)"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert r.returncode == 0 and "part-00000-" in r.stdout and "file" in r.stdout, r.stderr
    assert len(files_below(tmp_path / "b")) > 1


def test_cancelled_before_it_is_read(workers, query, tmp_path):
    q = workers.submit(f"COPY ({query}) TO '{tmp_path}/a' (FORMAT parquet, PER_THREAD_OUTPUT)")
    q.cancel()
    with pytest.raises(brantlib.BrantError, match="CANCELLED"):
        q.table()
    q.free()
    q = workers.submit(f"COPY ({query}) TO '{tmp_path}/b' (FORMAT parquet, PER_THREAD_OUTPUT)")
    q.free()  # never read: never there
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["a/", "a.csv"])
def test_cancelled_in_this_process(query, tmp_path, target):
    """While this process's DuckDB writes."""
    endless = "SELECT i, md5(i::VARCHAR) AS h FROM range(1000000000000) t(i)"
    with brantlib.Session(workers=1, distribute="never") as s:
        q = s.submit(f"COPY ({endless}) TO '{tmp_path}/{target}' (FORMAT csv)")
        failed = []
        t = threading.Thread(target=lambda: failed.append(pytest.raises(brantlib.BrantError, q.table)))
        t.start()
        staged = [tmp_path / ".brant-*" / "a.csv", tmp_path / "a" / ".brant-*" / "local" / "*"][target.endswith("/")]
        wait_for(lambda: [p for p in glob.glob(str(staged)) if os.path.getsize(p) > 0], 20, "a staged file")
        q.cancel()
        t.join(10)
        assert failed and "CANCELLED" in str(failed[0].value)
        q.free()
    assert list(tmp_path.iterdir()) == []


def test_timeout(query, tmp_path):
    slow = f"SELECT a.id, count(*) FROM ({query}) a JOIN ({query}) b ON a.d + b.d > 13 AND length(a.s || b.s) > 3 GROUP BY a.id"
    with brantlib.Session(workers=2, distribute="always", settings={"timeout_ms": 1500}) as s:
        with pytest.raises(brantlib.BrantError, match="TIMEOUT"):
            copy(s, slow, tmp_path / "a", "FORMAT parquet, PER_THREAD_OUTPUT")
    assert list(tmp_path.iterdir()) == []
