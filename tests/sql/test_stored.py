# SPDX-License-Identifier: Apache-2.0
"""INSERT … SELECT and CREATE TABLE … AS whose rows come from the workers: into an attached DuckDB file, into memory, into a directory of
Parquet files. The table that is made is compared with what DuckDB alone makes of the same statements: names, types, rows, their order,
the answers, and the errors."""
import pathlib
import time

import brantlib
import duckdb
import pytest

ROWS = 40_000


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Six Parquet files: several tasks a scan."""
    d = tmp_path_factory.mktemp("data")
    con = duckdb.connect()
    con.execute(f"""CREATE TABLE t AS SELECT i AS id, i % 7 AS k, CASE WHEN i % 11 = 0 THEN NULL ELSE 'r' || (i % 5) END AS s, (i * 37 % 1000) / 8 AS d,
                    DATE '2024-01-01' + (i % 300)::INTEGER AS day, [i, NULL, i % 3] AS l, {{'a': i % 5, 'b': 'x'}} AS st, (i * 3)::DECIMAL(12, 2) AS m
                    FROM range({ROWS}) t(i)""")
    for f in range(6):
        con.execute(f"COPY (SELECT * FROM t WHERE id % 6 = {f} ORDER BY id) TO '{d}/{f}.parquet' (FORMAT parquet)")
    return d


@pytest.fixture(scope="module", params=["staged", "eager"])
def session(request):
    with brantlib.Session(workers=3, threads=1, distribute="always", mode=request.param) as s:
        yield s


@pytest.fixture
def store(session, tmp_path):
    """A file attached for writing in the session, and the same in DuckDB alone."""
    session.run(f"ATTACH '{tmp_path}/ours.duckdb' AS store (READ_WRITE)")
    con = duckdb.connect()
    con.execute(f"ATTACH '{tmp_path}/theirs.duckdb' AS store")
    yield con
    con.close()
    session.run("DETACH store")


def both(session, con, sql, distributed=None):
    """The answers of both, and that they are equal: names, types, rows."""
    table, stats = session.run(sql)
    want = con.execute(sql).to_arrow_table()
    assert table.column_names == want.column_names and table.schema.types == want.schema.types, sql
    assert table.to_pylist() == want.to_pylist(), sql
    if distributed is not None:
        assert bool(stats.distributed) == distributed and (stats.stages >= 1) == distributed
    return table.to_pylist()


def run(session, con, sql):
    """A statement without rows."""
    session.run(sql)
    con.execute(sql)


def same_table(session, con, name, order="ALL", enum=False):
    both(session, con, f"SELECT column_name, data_type, is_nullable, column_default FROM information_schema.columns WHERE table_catalog = 'store' "
         f"AND table_name = '{name}' ORDER BY ordinal_position")
    columns = "* REPLACE (e::VARCHAR AS e)" if enum else "*"
    return both(session, con, f"SELECT {columns} FROM store.{name} ORDER BY {order}")


# ---- CREATE TABLE AS

def test_create_table_as(session, here, store):
    sql = f"CREATE TABLE store.t AS SELECT k, count(*) AS n, sum(m) AS m, max(day) AS \"last day\", any_value(st.b) AS b FROM '{here}/*.parquet' GROUP BY k"
    assert both(session, store, sql, True) == [{"Count": 7}]
    assert len(same_table(session, store, "t")) == 7
    both(session, store, f"CREATE OR REPLACE TABLE store.t AS FROM '{here}/*.parquet' ORDER BY d, id", True)
    same_table(session, store, "t", "rowid")  # the order is the query's
    both(session, store, f"CREATE TABLE IF NOT EXISTS store.t AS SELECT 1 AS a FROM '{here}/*.parquet'")
    assert len(same_table(session, store, "t")) == ROWS
    run(session, store, "CREATE SCHEMA store.sch")
    both(session, store, f"create table store.sch.\"t 2\"(a, \"B b\") as (SELECT id, l FROM '{here}/*.parquet' WHERE id < 10 ORDER BY id);", True)
    both(session, store, "DESCRIBE store.sch.\"t 2\"")
    both(session, store, "FROM store.sch.\"t 2\"")
    both(session, store, f"CREATE TABLE store.w AS WITH q AS (SELECT id FROM '{here}/*.parquet') SELECT max(id) AS x FROM q", True)
    both(session, store, "FROM store.w")
    both(session, store, f"CREATE TABLE store.e AS SELECT id, l FROM '{here}/*.parquet' WHERE id < 0", True)
    assert same_table(session, store, "e") == []
    run(session, store, f"CREATE TABLE store.nd AS SELECT id, l FROM '{here}/*.parquet' WITH NO DATA")
    assert same_table(session, store, "nd") == []


def test_in_memory(session, here, store):
    both(session, store, f"CREATE TABLE mem AS SELECT s, avg(d) AS a FROM '{here}/*.parquet' GROUP BY s", True)
    both(session, store, "SELECT * FROM mem ORDER BY ALL", False)
    both(session, store, f"INSERT INTO mem SELECT 'all', avg(d) FROM '{here}/*.parquet'", True)
    both(session, store, "SELECT * FROM mem ORDER BY ALL", False)
    run(session, store, "DROP TABLE mem")


def test_a_table_of_its_own_rows(session, here, store):
    """What reads a table of the file is read where the file is: here."""
    both(session, store, f"CREATE TABLE store.a AS SELECT id FROM '{here}/*.parquet'", True)
    both(session, store, f"INSERT INTO store.a SELECT a.id + {ROWS} FROM store.a JOIN '{here}/*.parquet' p USING (id)", False)
    assert len(same_table(session, store, "a")) == 2 * ROWS
    why = session.explain("SELECT count(*) FROM store.a", False, True)
    assert "store is attached for writing" in why


# ---- INSERT

def test_insert(session, here, store):
    run(session, store, "CREATE TABLE store.t (id BIGINT PRIMARY KEY, s VARCHAR DEFAULT 'none', n INTEGER NOT NULL DEFAULT 7, d DOUBLE)")
    files = f"'{here}/*.parquet'"
    both(session, store, f"INSERT INTO store.t SELECT id, s, k, d FROM {files} WHERE id < 100 ORDER BY id", True)
    both(session, store, f"INSERT INTO store.t (d, id) SELECT 1, id FROM {files} WHERE id BETWEEN 100 AND 110 ORDER BY id", True)
    both(session, store, f"INSERT INTO store.t BY NAME SELECT k AS n, id FROM {files} WHERE id BETWEEN 200 AND 210", True)
    both(session, store, f"WITH q AS (SELECT max(id) + 1000000 AS m FROM {files}) INSERT INTO store.t (id) SELECT m FROM q", True)
    both(session, store, "INSERT INTO store.t VALUES (-1, DEFAULT, 3, NULL), (-2, 'x', DEFAULT, 0)", False)
    both(session, store, "INSERT INTO store.t (id, n) VALUES (-3, 5) RETURNING id, s, n + 1 AS m", False)
    rows = both(session, store, f"INSERT INTO store.t AS a (id, s) SELECT id, s FROM {files} WHERE id BETWEEN 300 AND 309 ORDER BY id "
                "RETURNING t.id, s, n * 2 AS m", True)
    assert len(rows) == 10
    both(session, store, f"INSERT OR IGNORE INTO store.t SELECT id, s, k, d FROM {files} WHERE id < 120 ORDER BY id", True)
    both(session, store, f"INSERT OR REPLACE INTO store.t SELECT id, 'new', k, d FROM {files} WHERE id < 5 ORDER BY id", True)
    both(session, store, f"INSERT INTO store.t SELECT id, s, k, d FROM {files} WHERE id < 50 "
         "ON CONFLICT (id) DO UPDATE SET d = excluded.d + t.n WHERE t.n > 3", True)
    both(session, store, f"INSERT INTO store.t SELECT id, s, k, d FROM {files} WHERE id < 50 ON CONFLICT DO NOTHING", True)
    both(session, store, "INSERT INTO store.t (id) SELECT 5 AS \"returning\" WHERE 1 = 0")
    both(session, store, "INSERT INTO store.t (id) (SELECT 555555)")
    assert len(same_table(session, store, "t")) > 120
    run(session, store, "CREATE TABLE store.dflt (a INTEGER DEFAULT 5)")
    both(session, store, "INSERT INTO store.dflt DEFAULT VALUES")
    same_table(session, store, "dflt")


def test_casts_of_an_insert(session, here, store):
    """Values become what the column is, as in DuckDB; an untyped NULL and a text too."""
    run(session, store, "CREATE TABLE store.t (a SMALLINT, b VARCHAR, c DATE, e ENUM('r0', 'r1', 'r2', 'r3', 'r4'), l VARCHAR[], n TIMESTAMP)")
    both(session, store, f"INSERT INTO store.t SELECT k, id, '2024-02-03', s, l, NULL FROM '{here}/*.parquet' WHERE id < 1000", True)
    assert len(same_table(session, store, "t", enum=True)) == 1000
    both(session, store, f"CREATE TABLE store.e AS SELECT e, [e] AS es, count(*) AS n FROM "
         f"(SELECT s::ENUM('r0', 'r1', 'r2', 'r3', 'r4') AS e FROM '{here}/*.parquet') GROUP BY e", True)
    both(session, store, "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'e' ORDER BY ALL")
    both(session, store, "SELECT e::VARCHAR AS e, es::VARCHAR AS es, n FROM store.e ORDER BY ALL")


@pytest.mark.parametrize("sql, message", [
    ("INSERT INTO store.t SELECT id, 'x' FROM {}", "table t has 1 columns"),
    ("INSERT INTO store.t SELECT s FROM {}", "Could not convert string"),
    ("INSERT INTO store.t SELECT id % 100 FROM {}", "(?i)duplicate key|primary key"),
    ("INSERT INTO store.t SELECT CASE WHEN id = 31000 THEN NULL ELSE id END FROM {}", "NOT NULL constraint failed"),
    ("INSERT INTO store.t SELECT CASE WHEN id = 31000 THEN error('no more') ELSE id END FROM {}", "no more"),
    ("INSERT INTO store.nope SELECT id FROM {}", "nope"),
    ("INSERT INTO store.t (nope) SELECT id FROM {}", "nope"),
    ("CREATE TABLE store.t AS SELECT id FROM {}", "already exists"),
    ("CREATE TABLE store.u AS SELECT CASE WHEN id = 31000 THEN error('no more') ELSE id END AS id FROM {}", "no more"),
    ("CREATE OR REPLACE TABLE store.t AS SELECT CASE WHEN id = 31000 THEN error('no more') ELSE id END AS id FROM {}", "no more"),
    ("CREATE TABLE store.u AS SELECT nope FROM {}", "nope")])
def test_an_error_leaves_nothing(session, here, store, tmp_path, sql, message):
    run(session, store, "CREATE TABLE store.t (id BIGINT PRIMARY KEY)")
    run(session, store, "INSERT INTO store.t VALUES (-1), (-2)")
    with pytest.raises(brantlib.BrantError, match=message):
        session.run(sql.format(f"'{here}/*.parquet'"))
    assert same_table(session, store, "t") == [{"id": -2}, {"id": -1}]
    assert both(session, store, "SELECT table_name FROM duckdb_tables() WHERE database_name = 'store' ORDER BY ALL") == [{"table_name": "t"}]


# ---- transactions

def test_transactions(session, here, store):
    files = f"'{here}/*.parquet'"
    both(session, store, f"CREATE TABLE store.t AS SELECT id FROM {files} WHERE id < 10", True)
    session.run("BEGIN")
    store.execute("BEGIN")
    both(session, store, f"INSERT INTO store.t SELECT id FROM {files} WHERE id BETWEEN 10 AND 19", True)
    assert both(session, store, "SELECT count(*) AS n FROM store.t") == [{"n": 20}]  # its own rows, before they are anybody else's
    both(session, store, f"CREATE TABLE store.u AS SELECT k, count(*) AS n FROM {files} GROUP BY k", True)
    both(session, store, "SELECT * FROM store.u ORDER BY ALL")
    both(session, store, f"SELECT count(*) AS n FROM {files} WHERE id IN (SELECT id FROM store.t)")
    session.run("ROLLBACK")
    store.execute("ROLLBACK")
    assert len(same_table(session, store, "t")) == 10
    with pytest.raises(brantlib.BrantError, match="store.u|Table with name u"):
        session.run("FROM store.u")
    session.run("BEGIN TRANSACTION")
    store.execute("BEGIN TRANSACTION")
    both(session, store, f"INSERT INTO store.t SELECT id + 100 FROM {files} WHERE id < 5", True)
    both(session, store, "UPDATE store.t SET id = id + 1000 WHERE id >= 100")
    both(session, store, "DELETE FROM store.t WHERE id < 3")
    session.run("COMMIT")
    store.execute("COMMIT")
    same_table(session, store, "t")


def test_an_error_inside_a_transaction(session, here, store):
    session.run("CREATE TABLE store.t AS SELECT 1 AS id")
    session.run("BEGIN")
    session.run("INSERT INTO store.t VALUES (2)")
    with pytest.raises(brantlib.BrantError, match="no more"):
        session.run(f"INSERT INTO store.t SELECT CASE WHEN id = 31000 THEN error('no more') ELSE id END FROM '{here}/*.parquet'")
    with pytest.raises(brantlib.BrantError, match="aborted"):
        session.run("SELECT 1")
    session.run("ROLLBACK")
    assert session.run("FROM store.t")[0].to_pylist() == [{"id": 1}]
    with pytest.raises(brantlib.BrantError, match="no transaction is active"):
        session.run("COMMIT")


def test_temporary_tables_in_a_transaction(session, here, store):
    """Inside a transaction they are DuckDB's own; one that lies on the workers isn't changed there."""
    session.run(f"CREATE TEMP TABLE kept AS SELECT id FROM '{here}/*.parquet'")
    session.run("BEGIN")
    session.run(f"CREATE TEMP TABLE inside AS SELECT id FROM '{here}/*.parquet' WHERE id < 5")
    assert session.run("SELECT count(*) AS n FROM inside")[0].to_pylist() == [{"n": 5}]
    assert session.run("SELECT count(*) AS n FROM kept")[0].to_pylist() == [{"n": ROWS}]
    for sql in ("INSERT INTO kept VALUES (1)", "DROP TABLE kept", "DELETE FROM kept"):
        with pytest.raises(brantlib.BrantError, match="outside of a transaction"):
            session.run(sql)
    session.run("ROLLBACK")
    with pytest.raises(brantlib.BrantError, match="inside"):
        session.run("FROM inside")
    assert session.run("SELECT count(*) AS n FROM kept")[0].to_pylist() == [{"n": ROWS}]
    session.run("INSERT INTO kept VALUES (-1)")
    assert session.run("SELECT count(*) AS n FROM kept")[0].to_pylist() == [{"n": ROWS + 1}]
    session.run("DROP TABLE kept")


def test_views_of_a_rolled_back_transaction(session, here):
    session.run("BEGIN")
    session.run("CREATE VIEW gone AS SELECT 1 AS a")
    assert session.run("FROM gone")[0].to_pylist() == [{"a": 1}]
    session.run("ROLLBACK")
    with pytest.raises(brantlib.BrantError, match="gone"):
        session.run("FROM gone")


# ---- the attached file

def test_from_reading_to_writing_and_back(session, here, tmp_path):
    """Executors have the file open while they read it, and close it when their queries are over."""
    path = tmp_path / "x.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE t AS SELECT i AS id FROM range(100000) r(i)")
    session.run(f"ATTACH '{path}' AS x")
    table, stats = session.run(f"SELECT count(*) AS n FROM x.t JOIN '{here}/*.parquet' USING (id)")
    assert table.to_pylist() == [{"n": ROWS}] and stats.distributed
    with pytest.raises(brantlib.BrantError, match=r"x is attached for reading.*READ_WRITE"):
        session.run("INSERT INTO x.t VALUES (1)")
    with pytest.raises(brantlib.BrantError, match=r"x is attached for reading.*READ_WRITE"):
        session.run("CREATE TABLE x.u AS SELECT 1 AS a")
    session.run("DETACH x")
    session.run(f"ATTACH '{path}' AS x (READ_WRITE)")
    session.run(f"CREATE TABLE x.u AS SELECT k, count(*) AS n FROM '{here}/*.parquet' GROUP BY k")
    session.run("DETACH x")
    session.run(f"ATTACH '{path}' AS x (READ_ONLY)")
    table, stats = session.run("SELECT sum(n)::BIGINT AS n FROM x.u")
    assert table.to_pylist() == [{"n": ROWS}] and stats.distributed
    session.run("DETACH x")
    end = time.monotonic() + 20  # and another process may write it, once the executors know that nobody reads it
    while True:
        try:
            with duckdb.connect(str(path)) as con:
                assert con.execute("SELECT count(*) FROM u").fetchone() == (7,)
            break
        except duckdb.IOException:
            assert time.monotonic() < end
            time.sleep(0.02)


def test_a_new_file(session, here, tmp_path):
    session.run(f"ATTACH '{tmp_path}/new.duckdb'")
    assert session.run(f"CREATE TABLE new.t AS SELECT id FROM '{here}/*.parquet'")[1].distributed
    session.run("USE new")
    try:
        session.run("CREATE VIEW v AS SELECT count(*) AS n FROM t")
        assert session.run("FROM v")[0].to_pylist() == [{"n": ROWS}]
        # what can't be cut into stages is not sent to executors, which would not know the view
        assert session.run("SELECT n FROM v, (SELECT count(*) FROM 'here/0.parquet')".replace("here", str(here)))[0].to_pylist() == [{"n": ROWS}]
    finally:
        session.run("USE memory")
        session.run("DETACH new")
    with duckdb.connect(f"{tmp_path}/new.duckdb") as con:
        assert con.execute("FROM v").fetchall() == [(ROWS,)]


# ---- directories

def content(target, order="ALL", **options):
    words = "".join(f", {k} = {v}" for k, v in options.items())
    return duckdb.sql(f"SELECT * FROM read_parquet('{target}/**/*.parquet'{words}) ORDER BY {order}")


def test_directory(session, here, tmp_path):
    target = tmp_path / "out"
    files = f"'{here}/*.parquet'"
    table, stats = session.run(f"CREATE TABLE '{target}/' AS SELECT id, s, d FROM {files} WHERE id < 1000")
    assert table.to_pylist() == [{"Count": 1000}] and str(table.schema.types) == "[DataType(int64)]" and stats.distributed and stats.rows_out == 1000
    with pytest.raises(brantlib.BrantError, match="not empty"):
        session.run(f"CREATE TABLE '{target}/' AS SELECT 1 AS a")
    assert session.run(f"CREATE TABLE IF NOT EXISTS '{target}/' AS SELECT 1 AS a")[0].num_columns == 0
    assert session.run(f"INSERT INTO '{target}/' SELECT id, s, d FROM {files} WHERE id >= 1000")[0].to_pylist() == [{"Count": ROWS - 1000}]
    assert content(target).fetchall() == duckdb.sql(f"SELECT id, s, d FROM {files} ORDER BY ALL").fetchall()
    assert not list(target.glob(".brant*"))
    session.run(f"CREATE OR REPLACE TABLE '{target}/' (a, b) AS SELECT k::SMALLINT, day FROM {files} WHERE id < 3")
    assert content(target).fetchall() == duckdb.sql(f"SELECT k, day FROM {files} WHERE id < 3 ORDER BY ALL").fetchall()
    # the columns of what is there: by place, by name, some of them, values, and with casts
    session.run(f"INSERT INTO '{target}/' VALUES (7, '2020-01-02'), (NULL, NULL)")
    session.run(f"INSERT INTO '{target}/' (b) SELECT DATE '2021-01-01'")
    session.run(f"INSERT INTO '{target}/' BY NAME SELECT DATE '2022-01-01' AS B, 5 AS a")
    session.run(f"WITH q AS (SELECT 9 AS x) INSERT INTO '{target}/' (A) SELECT x FROM q")
    got = content(target)
    assert [str(t) for t in got.types] == ["SMALLINT", "DATE"] and got.columns == ["a", "b"]
    added = duckdb.sql(f"SELECT a || ' ' || coalesce(b::VARCHAR, '-') FROM '{target}/*.parquet' WHERE a > 4 ORDER BY a").fetchall()
    assert added == [("5 2022-01-01",), ("7 2020-01-02",), ("9 -",)]
    assert len(got) == 8


def test_partitioned_directory(session, here, tmp_path):
    """INSERT follows the directories that are there."""
    target, files = tmp_path / "out", f"'{here}/*.parquet'"
    session.run(f"COPY (SELECT id, s, k, day FROM {files} WHERE id < 100) TO '{target}' (FORMAT parquet, PARTITION_BY (k, day))")
    assert session.run(f"INSERT INTO '{target}/' BY NAME SELECT id, s, k, day FROM {files} WHERE id >= 100 AND id < 200")[0].to_pylist() == [{"Count": 100}]
    session.run(f"INSERT INTO '{target}/' (k, day, id) VALUES ('07', 'a b/c', 5)")
    assert {str(p.parent.relative_to(target)) for p in target.rglob("*.parquet")} >= {"k=07/day=a%20b%2Fc", "k=1/day=2024-01-02"}
    got = duckdb.sql(f"SELECT id, s, k::INT, day FROM read_parquet('{target}/*/*/*.parquet', hive_partitioning = true) WHERE k <> '07' ORDER BY ALL")
    want = duckdb.sql(f"SELECT id, s, k, day FROM {files} WHERE id < 200 ORDER BY ALL")
    assert [(*r[:3], str(r[3])) for r in got.fetchall()] == [(*r[:3], str(r[3])) for r in want.fetchall()]


@pytest.mark.parametrize("sql, message", [
    ("INSERT INTO '{}' SELECT id FROM {}", "has 2 columns, and the rows have 1"),
    ("INSERT INTO '{}' (id, nope) SELECT id, s FROM {}", 'no column "nope"'),
    ("INSERT INTO '{}' (id, ID) SELECT id, id FROM {}", "twice"),
    ("INSERT INTO '{}' (id) SELECT id, s FROM {}", "has 1 columns here, and the rows have 2"),
    ("INSERT INTO '{}' BY NAME SELECT id, d FROM {}", 'no column "d"'),
    ("INSERT INTO '{}' SELECT s, s FROM {}", "Could not convert string"),
    ("INSERT INTO '{}' SELECT CASE WHEN id = 31000 THEN error('no more') ELSE id END, s FROM {}", "no more"),
    ("INSERT INTO '{}' SELECT id, s FROM {} RETURNING id", "RETURNING needs a table"),
    ("INSERT INTO '{}' SELECT id, s FROM {} ON CONFLICT DO NOTHING", "no keys that could conflict"),
    ("INSERT OR REPLACE INTO '{}' SELECT id, s FROM {}", "no keys that could conflict"),
    ("INSERT INTO '{}' DEFAULT VALUES --{}", "no defaults"),
    ("INSERT INTO '{}' SELECT nope FROM {}", "nope"),
    ("CREATE OR REPLACE TABLE '{}' AS SELECT CASE WHEN id = 31000 THEN error('no more') ELSE id END, s FROM {}", "no more"),
    ("CREATE OR REPLACE TABLE '{}' (a) AS SELECT id, s FROM {}", "1 columns are named, and the rows have 2")])
def test_errors_of_a_directory(session, here, tmp_path, sql, message):
    target = tmp_path / "it's [a] dir*"
    duckdb.sql("SELECT 1::BIGINT AS id, 'x' AS s").write_parquet(str(tmp_path / "x.parquet"))
    target.mkdir()
    (tmp_path / "x.parquet").rename(target / "x.parquet")
    with pytest.raises(brantlib.BrantError, match=message):
        session.run(sql.format(str(target).replace("'", "''") + "/", f"'{here}/*.parquet'"))
    assert [p.name for p in pathlib.Path(target).iterdir()] == ["x.parquet"]


# ---- what DuckDB does in this process, whatever it reads

def test_update_delete_and_merge_with_large_files(session, here, store):
    files = f"'{here}/*.parquet'"
    both(session, store, f"CREATE TABLE store.t AS SELECT id, k, s FROM {files} WHERE id < 500", True)
    both(session, store, f"UPDATE store.t SET s = 'upd' WHERE id IN (SELECT id FROM {files} WHERE k = 3)", False)
    both(session, store, f"UPDATE store.t SET k = x.n FROM (SELECT k, count(*) AS n FROM {files} GROUP BY k) x WHERE x.k = t.k", False)
    both(session, store, f"DELETE FROM store.t WHERE id < (SELECT max(id) - {ROWS - 100} FROM {files})", False)
    both(session, store, f"DELETE FROM store.t USING {files} f WHERE f.id = t.id AND f.day = DATE '2024-07-01' RETURNING t.id", False)
    both(session, store, f"MERGE INTO store.t USING (SELECT * FROM {files} WHERE id BETWEEN 450 AND 600) f ON f.id = t.id WHEN MATCHED THEN UPDATE SET s = 'm' "
         "WHEN NOT MATCHED THEN INSERT (id, k, s) VALUES (f.id, f.k, f.s)", False)
    same_table(session, store, "t")


def test_explain(session, here, store, tmp_path):
    """The stages of the rows; nothing is stored."""
    select = f"SELECT k, count(*) AS n FROM '{here}/*.parquet' GROUP BY k"
    want = session.run(f"EXPLAIN {select}")[0].to_pylist()
    for sql in (f"CREATE TABLE store.t AS {select}", f"CREATE TABLE '{tmp_path}/d/' AS {select}", f"COPY ({select}) TO '{tmp_path}/d/' (FORMAT parquet)"):
        got = session.run(f"EXPLAIN {sql}")[0].to_pylist()
        assert [r["explain"] for r in got][:3] == [r["explain"] for r in want][:3]
    assert not (tmp_path / "d").exists()
    with pytest.raises(brantlib.BrantError):
        session.run("FROM store.t")


def test_a_macro_reads_what_is_attached_for_reading(session, tmp_path):
    duckdb.connect(str(tmp_path / "sales.duckdb")).execute("CREATE TABLE orders AS SELECT range AS id, range % 10 AS amount FROM range(100)").close()
    session.run(f"ATTACH '{tmp_path}/sales.duckdb' AS sales")
    session.run("CREATE OR REPLACE MACRO total(x) AS (SELECT sum(amount) FROM sales.orders WHERE id <= x)")
    assert session.run("SELECT total(9)")[0].column(0).to_pylist() == [45]
    with pytest.raises(brantlib.BrantError, match="attached for reading"):
        session.run("INSERT INTO sales.orders VALUES (1, 2)")
    session.run("DROP MACRO total")
    session.run("DETACH sales;")
    (tmp_path / "sales.duckdb").unlink()
    assert session.run("SELECT count(*) FROM range(3)")[0].column(0).to_pylist() == [3]  # no task asks for the file


def test_returning_an_enum_is_refused_before_it_runs(session, store):
    session.run("CREATE TABLE store.e (m ENUM('a', 'b'), i INT)")
    session.run("INSERT INTO store.e VALUES ('a', 1), ('b', 2)")
    for begin in (False, True):
        if begin:
            session.run("BEGIN")
        with pytest.raises(brantlib.BrantError, match="RETURNING m::VARCHAR"):
            session.run("DELETE FROM store.e RETURNING m")
        if begin:
            session.run("ROLLBACK")
        assert session.run("SELECT count(*) FROM store.e")[0].column(0).to_pylist() == [2]
    assert session.run("DELETE FROM store.e WHERE i = 2 RETURNING m::VARCHAR AS m")[0].to_pydict() == {"m": ["b"]}


def test_a_file_at_home_is_read_by_all(session, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    duckdb.connect(str(tmp_path / "mine.duckdb")).execute("CREATE TABLE t AS SELECT range AS i FROM range(50)").close()
    session.run("ATTACH '~/mine.duckdb' AS mine")
    table, stats = session.run("SELECT sum(i) FROM mine.t")
    assert stats.distributed and table.column(0).to_pylist() == [1225]
    session.run("DETACH mine")
