# SPDX-License-Identifier: Apache-2.0
"""Sessions of several statements: views, macros, settings, attached files, tables in memory, and what of them tasks get to know.

Each test has views, names and settings of its own, so the tests share sessions (a session with tables in its memory runs in this
process what it can't plan for executors).
"""
import json

import duckdb
import pytest

import brantlib
import files
import queries


@pytest.fixture(scope="module")
def here():
    return files.make()


@pytest.fixture(scope="module")
def session(here):
    with brantlib.Session(workers=3, threads=1, distribute="always", settings={"TimeZone": "UTC"}) as s:
        yield s


@pytest.fixture
def local(here):
    """A session for tables in memory: nothing of it needs workers, so none is started."""
    with brantlib.Session(workers=3, threads=1, distribute="always", settings={"TimeZone": "UTC"}) as s:
        yield s


def rows(session, sql):
    return queries.Duck().read(session.run(sql)[0]).rows


def plan(session, sql):
    return json.loads(session.explain(sql, False, True))


def whole(session, sql):
    """Run as one task of its own text, by way of a source that can't be planned for executors."""
    assert plan(session, sql)["whole_query_reason"]
    table, stats = session.run(sql)
    assert stats.distributed and stats.stages == 1
    return queries.Duck().read(table).rows


# ---- views and macros

def test_views_of_views_with_and_without_replace(session, here):
    session.run(f"CREATE VIEW v_facts AS SELECT id, g, x FROM '{here}/facts/*.parquet'")
    session.run("CREATE VIEW v_groups(grp, n) AS SELECT g, count(*) FROM v_facts GROUP BY g")
    session.run("CREATE TEMP VIEW v_temp AS SELECT * FROM v_groups WHERE grp > 2")
    want = duckdb.sql(f"SELECT g, count(*) FROM '{here}/facts/*.parquet' WHERE g > 2 GROUP BY g").fetchall()
    assert sorted(rows(session, "SELECT * FROM v_temp")) == sorted(want)
    csv = f"read_csv(concat('{here}/text/a', '.csv'))"
    for _ in range(3):  # executors get the views each time anew
        assert whole(session, f"SELECT count(*), max(n) FROM {csv} c JOIN v_groups v ON c.id = v.grp") == [(8, 2500)]
    session.run("CREATE OR REPLACE VIEW v_groups(grp, n) AS SELECT 1, 5")
    assert whole(session, f"SELECT count(*), max(n) FROM {csv} c JOIN v_groups v ON c.id = v.grp") == [(1, 5)]
    assert rows(session, "SELECT * FROM v_groups") == [(1, 5)]
    session.run("DROP VIEW v_groups")
    with pytest.raises(brantlib.BrantError, match="v_groups"):
        session.run("SELECT * FROM v_groups")
    session.run("CREATE VIEW IF NOT EXISTS v_groups AS SELECT 7 AS grp, 8 AS n")
    for _ in range(2):
        assert whole(session, f"SELECT count(*), max(n) FROM {csv} c JOIN v_groups v ON c.id = v.grp") == [(1, 8)]


APART = {
    "of a table in memory": ["CREATE TABLE apart (a INT)", "CREATE VIEW apart_v AS FROM apart"],
    "of a table that is gone": ["CREATE TABLE apart (a INT)", "CREATE VIEW apart_v AS FROM apart", "DROP VIEW apart_v", "DROP TABLE apart"],
    "in a schema": ["CREATE SCHEMA apart", "CREATE VIEW apart.v AS SELECT 1 AS one", "CREATE MACRO apart.f(x) AS x + 1"],
    "of a type": ["CREATE TYPE apart AS ENUM ('a')", "CREATE VIEW apart_v AS SELECT 'a'::apart AS e"],
    "of a temporary table": ["CREATE TEMP TABLE apart AS SELECT 1 AS a WITH DATA", "CREATE TEMP VIEW apart_v AS FROM apart"],
    "of a sequence": ["CREATE SEQUENCE apart", "CREATE VIEW apart_v AS SELECT nextval('apart') AS n"],
}


@pytest.mark.parametrize("what", APART)
def test_views_that_only_this_process_can_make(local, here, what):
    """A text of its own gets the views that it names, and what these name; others are no reason to fail."""
    for text in ["CREATE VIEW base AS SELECT 5 AS grp", "CREATE MACRO twice(x) AS x * 2", *APART[what],
                 'CREATE VIEW "used One" AS SELECT twice(grp) AS grp FROM base']:
        local.run(text)
    facts = f"'{here}/facts/*.parquet' c"
    n = duckdb.sql(f"SELECT count(*) FROM {facts}").fetchone()[0]
    few = duckdb.sql(f"SELECT count(*) FROM {facts} WHERE id = 10").fetchone()[0]
    assert [r[1:] for r in whole(local, f"SELECT row(1, 'x') AS r, count(*) FROM {facts} GROUP BY 1")] == [(n,)]  # no type text stands for such rows
    text = f"SELECT row(1, 'x') AS r, count(*), max(v.grp) FROM {facts} JOIN \"USED one\" v ON c.id = v.grp GROUP BY 1"
    assert [r[1:] for r in whole(local, text)] == [(few, 10)]


DEEP = "v"
for _letter in "abcdefghijkl":
    DEEP = f"query(${_letter}$FROM {DEEP}${_letter}$)"

# Statements, and what is read then. None: it is read in between too, so that the executor has what there is so far.
NAMED = {
    "with a schema": (["CREATE VIEW main.v AS {few}"], "v"),
    "with a catalog": (["CREATE VIEW memory.main.v AS {few}"], "v"),
    "with a catalog alone": (["CREATE VIEW memory.v AS {few}"], "main.v"),
    "temporary": (["CREATE VIEW v AS {all}", None, "CREATE TEMP VIEW v AS {few}"], "v"),
    "in capitals": (["CREATE VIEW Ab AS {few}"], "aB"),
    "in quotes": (["CREATE VIEW \"A b\" AS {few}"], "\"a B\""),
    "as a text": (["CREATE VIEW \"A b\" AS {few}"], "'a B'"),
    "replaced with a schema": (["CREATE VIEW v AS {all}", None, "CREATE OR REPLACE VIEW main.v AS {few}"], "v"),
    "replaced with a catalog": (["CREATE VIEW v AS {all}", None, "CREATE OR REPLACE VIEW memory.main.v AS {few}"], "v"),
    "replaced without": (["CREATE VIEW main.v AS {all}", None, "CREATE OR REPLACE VIEW v AS {few}"], "main.v"),
    "dropped with a schema": (["CREATE VIEW v AS {all}", None, "DROP VIEW main.v", "CREATE VIEW IF NOT EXISTS v AS {few}"], "v"),
    "renamed": (["CREATE VIEW a AS {few}", "ALTER VIEW a RENAME TO v"], "v"),
    "renamed with a schema": (["CREATE VIEW a AS {few}", "ALTER VIEW main.a RENAME TO \"V\""], "v"),
    "renamed, and the name is another's": (["CREATE VIEW v AS {all}", None, "ALTER VIEW v RENAME TO b", "CREATE VIEW v AS {few}"], "v"),
    "renamed back": (["CREATE VIEW v AS {few}", "ALTER VIEW v RENAME TO b", "ALTER VIEW b RENAME TO v"], "v"),
    "in query_table": (["CREATE VIEW v AS {all}", None, "CREATE OR REPLACE VIEW v AS {few}"], "query_table('v')"),
    "in query_table's list": (["CREATE VIEW v AS {all}", None, "CREATE OR REPLACE VIEW v AS {few}"], "query_table(['v'])"),
    "in query": (["CREATE VIEW v AS {all}", None, "CREATE OR REPLACE VIEW v AS {few}"], "query('FROM v')"),
    "in query within dollars": (["CREATE VIEW v AS {few}"], "query($x$FROM v$x$)"),
    "in a query's query": (["CREATE VIEW v AS {few}"], "query('FROM query(''FROM v'')')"),
    "in deep queries": (["CREATE VIEW v AS {few}"], DEEP),
    "in query with escapes": (["CREATE VIEW v AS {few}"], "query(e'FROM \\x76')"),
    "computed": (["CREATE VIEW v2 AS {few}"], "query_table('v' || '2')"),
    "by a variable": (["CREATE VIEW v AS {few}", "SET VARIABLE which = 'v'"], "query_table(getvariable('which'))"),
    "by a macro's parameter": (["CREATE VIEW v AS {few}", "CREATE MACRO rows_of(t) AS TABLE FROM query_table(t)"], "rows_of('v')"),
    "by a view": (["CREATE VIEW a AS {all}", "CREATE VIEW v AS FROM a", None, "CREATE OR REPLACE VIEW main.a AS {few}"], "v"),
    "by a view's query": (["CREATE VIEW a AS {all}", "CREATE VIEW v AS FROM query('FROM a')", None, "CREATE OR REPLACE VIEW main.a AS {few}"], "v"),
    "macro with a schema": (["CREATE MACRO main.f(x) AS x < 3", "CREATE VIEW v AS {all}"], "v WHERE f(id)"),
    "macro replaced with a schema": (["CREATE MACRO f(x) AS x < 4", "CREATE VIEW v AS SELECT id FROM ({all}) WHERE f(id)",
        None, "CREATE OR REPLACE MACRO main.f(x) AS x < 3"], "v"),
    "macro replaced with a catalog": (["CREATE MACRO f(x) AS x < 4", "CREATE VIEW v AS {all}",
        "CREATE OR REPLACE MACRO memory.main.f(x) AS x < 3"], "v WHERE f(id)"),
    "macro as a method": (["CREATE MACRO main.f(x) AS x < 3", "CREATE VIEW v AS {all}"], "v WHERE id.f()"),
    "macro of a macro": (["CREATE MACRO main.f(x) AS x < 3", "CREATE FUNCTION g(x) AS main.f(x)", "CREATE VIEW v AS {all}"], "v WHERE g(id)"),
    "macro that is an operator": (["CREATE MACRO \"~~\"(a, b) AS a::INT < 3", "CREATE VIEW v AS {all}"], "v WHERE id::VARCHAR LIKE 'x'"),
    "macro that is a syntax": (["CREATE MACRO date_part(p, x) AS x", "CREATE VIEW v AS {all}"], "v WHERE extract(year FROM id) < 3"),
}


@pytest.mark.parametrize("how", NAMED)
def test_texts_of_their_own_find_what_they_name(here, how):
    """One executor, as on a machine by default, runs texts as they are, and keeps what each of them made."""
    statements, source = NAMED[how]
    texts = {"few": f"SELECT id FROM '{here}/facts/*.parquet' WHERE id < 3", "all": f"SELECT id FROM '{here}/facts/*.parquet'"}
    with duckdb.connect() as duck, brantlib.Session(workers=1, threads=1, distribute="auto", settings={"small_bytes": "0"}) as s:
        for text in [*statements, None, None]:  # twice: an executor makes them again for each query
            if text is not None:
                s.run(text.format(**texts))
                duck.sql(text.format(**texts))
                continue
            query = f"SELECT sum(id), count(*) FROM {source}"
            assert [tuple(map(int, r)) for r in whole(s, query)] == duck.sql(query).fetchall()


def test_macros(session, here):
    session.run("CREATE MACRO m_plus(a, b := 10) AS a + b")
    session.run(f"CREATE MACRO m_rows(n) AS TABLE SELECT id FROM '{here}/facts/*.parquet' WHERE id < n")
    assert rows(session, f"SELECT sum(m_plus(id)), sum(m_plus(id, b := 1)) FROM '{here}/one/*.parquet' o JOIN m_rows(5) r ON o.a = r.id") == [("60", "15")]
    csv = f"read_csv(concat('{here}/text/a', '.csv'))"
    for _ in range(2):
        assert whole(session, f"SELECT sum(m_plus(id)) FROM {csv} WHERE id IN (FROM m_rows(3))") == [("33",)]
    session.run("CREATE OR REPLACE FUNCTION m_plus(a) AS a * 100")
    assert whole(session, f"SELECT max(m_plus(id)) FROM {csv}") == [(49900,)]


# ---- settings

def test_set_and_reset(session, here):
    sql = f"SELECT extract(hour FROM tz) AS h, count(*) AS n FROM '{here}/facts/*.parquet' WHERE id < 4 GROUP BY h"
    csv = f"SELECT (TIMESTAMPTZ '2024-01-01 00:00:00+00')::VARCHAR AS t FROM read_csv(concat('{here}/text/a', '.csv')) LIMIT 1"
    try:
        session.run("SET TimeZone = 'Asia/Tokyo'")
        assert rows(session, sql) == [(9, 4)] and whole(session, csv) == [("2024-01-01 09:00:00+09",)]
        session.run("SET SESSION TimeZone TO 'America/New_York'")
        assert rows(session, sql) == [(20, 4)] and whole(session, csv) == [("2023-12-31 19:00:00-05",)]
    finally:
        session.set("TimeZone", "UTC")
    assert rows(session, sql) == [(0, 4)] and whole(session, csv) == [("2024-01-01 00:00:00+00",)]


def test_reset_reaches_executors(session, here):
    sql = f"SELECT DISTINCT list_sort(l) AS l FROM '{here}/nested/*.parquet' WHERE id = 3"
    assert rows(session, sql) == [("[3, 6, NULL]",)]
    session.run("SET default_null_order = 'nulls_first'")
    assert rows(session, sql) == [("[NULL, 3, 6]",)]
    session.run("RESET default_null_order")
    assert rows(session, sql) == [("[3, 6, NULL]",)]


def test_own_settings_as_statements(session, here):
    sql = f"SELECT k, count(*) FROM '{here}/facts/*.parquet' GROUP BY k"
    session.run("SET partitions = 5")
    assert plan(session, sql)["stages"][0]["partitions"] == 5
    session.run("SET two_step_aggregate = false")
    assert "partial" not in plan(session, sql)["stages"][0]["label"]
    session.run("RESET two_step_aggregate")
    session.run("RESET partitions")
    p = plan(session, sql)["stages"][0]
    assert p["partitions"] == 3 and "partial" in p["label"]
    with pytest.raises(brantlib.BrantError, match="no_such_setting"):
        session.run("SET no_such_setting = 1")
    with pytest.raises(brantlib.BrantError, match="integer_division"):
        session.run("SET integer_division = true")


def test_variables(session, here):
    session.run("SET VARIABLE least = 19995")
    assert sorted(rows(session, f"SELECT id FROM '{here}/facts/*.parquet' WHERE id > getvariable('least')")) == [(i,) for i in range(19996, 20000)]
    session.run("SET VARIABLE least = 498")
    assert whole(session, f"SELECT id FROM read_csv(concat('{here}/text/a', '.csv')) WHERE id > getvariable('least')") == [(499,)]


@pytest.fixture(params=["auto", "always"])
def anywhere(request):
    with brantlib.Session(workers=2, threads=1, distribute=request.param, settings={"TimeZone": "UTC"}) as s:
        yield s


ITSELF = "SELECT row(1, 'x') AS r, count(*) AS n, any_value({}) AS v FROM '{}/facts/*.parquet' c GROUP BY 1"  # no type text stands for such rows


def by_itself(session, here, value):
    return [r[2] for r in rows(session, ITSELF.format(value, here))]


@pytest.mark.parametrize("value, shown", [
    ("5", 5), ("'it''s '", "it's "), ("(SELECT max(a) FROM in_memory)", 3), ("NULL", None), ("[1, NULL]::INTEGER[]", "[1, NULL]"),
    ("current_schema()", "main"),
    ("{'a': [lower('X, ''')]}", "{'a': ['x, \\'']}"), ("union_value(k := 1)", "1"), ("row(1, 'y')", "(1, y)"), ("DATE '2024-02-29'", "2024-02-29"),
    ("(SELECT count(*) FROM changing)", 1)])
def test_variables_have_one_value_wherever_they_are_read(anywhere, here, value, shown):
    """Not the text that it was computed by, which may read what only this process has."""
    for text in ("CREATE TABLE in_memory AS SELECT 3 AS a", "CREATE TABLE changing AS SELECT 1 AS a", f"SET VARIABLE Val = {value}",
                 "INSERT INTO changing VALUES (2)", "CREATE VIEW later AS SELECT a FROM in_memory"):
        anywhere.run(text)
    read = "getvariable('vAL')" if isinstance(shown, int) or shown is None else "getvariable('vAL')::VARCHAR"
    assert rows(anywhere, f"SELECT {read} AS v") == [(shown,)]
    assert rows(anywhere, f"SELECT DISTINCT {read} AS v FROM '{here}/facts/*.parquet'") == [(shown,)]
    assert by_itself(anywhere, here, read) == [shown]
    anywhere.run("RESET VARIABLE val")
    assert by_itself(anywhere, here, "getvariable('val')") == [None]


def test_a_random_variable_stays_what_it_is(anywhere, here):
    anywhere.run("SET VARIABLE chance = random()")
    got = {rows(anywhere, "SELECT getvariable('chance') AS v")[0][0], *by_itself(anywhere, here, "getvariable('chance')"),
           *by_itself(anywhere, here, "getvariable('ch' || 'ance')")}
    assert len(got) == 1


def test_variables_that_no_text_of_the_session_names(anywhere, here, tmp_path):
    """Generated columns and views of attached files read them; longer ones are for the session's own connection."""
    with duckdb.connect(str(tmp_path / "f.duckdb")) as duck:
        duck.execute("CREATE VIEW v AS SELECT 1 + getvariable('add') AS b")
    anywhere.run("SET VARIABLE add = 41")
    anywhere.run(f"ATTACH '{tmp_path}/f.duckdb' AS f (READ_ONLY)")
    assert rows(anywhere, "SELECT b FROM f.v") == [(42,)]
    anywhere.run("DETACH f")
    anywhere.run("CREATE TABLE t (a INTEGER, b INTEGER AS (a + getvariable('add')))")
    anywhere.run("INSERT INTO t VALUES (1)")
    for _ in range(2):
        assert rows(anywhere, "SELECT b FROM t") == [(42,)]
        anywhere.run("SET VARIABLE long = (SELECT list(i) FROM range(100000) t(i))")
    assert rows(anywhere, "SELECT sum(x)::BIGINT AS s FROM (SELECT unnest(getvariable('long')) AS x)") == [(4999950000,)]


def test_a_variable_longer_than_a_message(here):
    """One executor gets texts of their own, with the values of their variables."""
    with brantlib.Session(workers=1, threads=1, distribute="auto", settings={"small_bytes": "0"}) as s:
        s.run("SET VARIABLE long = repeat('x', 17000000)")
        text = f"SELECT length(getvariable('long')) AS n, count(*) AS c FROM '{here}/facts/*.parquet'"
        assert rows(s, text) == duckdb.sql(text.replace("getvariable('long')", "repeat('x', 17000000)")).fetchall()
        assert "message" in s.explain(text)
        _, stats = s.run(f"SELECT count(*) FROM '{here}/facts/*.parquet'")
        assert stats.distributed


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("distribute", ["auto", "always"])
def test_sequences_count_here(here, workers, distribute):
    """Executors have none of them, and one count has one place."""
    files_of = f"'{here}/facts/*.parquet'"
    n = duckdb.sql(f"SELECT count(*) FROM {files_of}").fetchone()[0]
    with brantlib.Session(workers=workers, threads=1, distribute=distribute, settings={"small_bytes": "0"}) as s:
        for text in ("CREATE SEQUENCE sq", "CREATE MACRO following() AS NEXTVAL('sq')", "CREATE VIEW seen AS SELECT currval('sq') AS c"):
            s.run(text)
        assert rows(s, "SELECT nextval('sq') + 0 AS v") == [(1,)]
        assert rows(s, "SELECT c FROM seen") == [(1,)]
        assert sorted(v for _, v in rows(s, f"SELECT id, nextval('sq') AS v FROM {files_of}")) == list(range(2, n + 2))
        assert rows(s, "SELECT following() AS v, row(1, 'x')::VARCHAR AS r") == [(n + 2, "(1, x)")]
        assert [v for _, v in rows(s, f"SELECT row(1, 'x') AS r, nextval('sq') AS v FROM {files_of} LIMIT 1")] == [n + 3]
        _, stats = s.run(f"SELECT count(*) FROM {files_of}")
        assert stats.distributed


@pytest.mark.parametrize("use", ["USE {}", "SET schema = '{}'", "SET search_path = '{}'"])
def test_a_schema_of_this_process(anywhere, here, use):
    """Names without a schema are of the one that is used, also on connections beside the session's own; executors have none of it."""
    count = f"SELECT count(*) AS n FROM '{here}/facts/*.parquet'"
    for text in ("CREATE TABLE t AS SELECT 1 AS id", "CREATE VIEW v AS SELECT 1 AS id", 'CREATE SCHEMA IF NOT EXISTS "Own"',
                 "CREATE TABLE own.t AS SELECT 2 AS id", use.format("own"), "CREATE VIEW v AS SELECT 2 AS id", "CREATE VIEW memory.main.w AS SELECT 3 AS id"):
        anywhere.run(text)
    assert rows(anywhere, "FROM t") == rows(anywhere, "FROM v") == [(2,)]
    assert rows(anywhere, count) == [(20000,)]
    assert by_itself(anywhere, here, "(SELECT max(id) FROM v)") == by_itself(anywhere, here, "2") == [2]
    anywhere.run(use.format("memory" if use.startswith("USE") else "main"))
    assert rows(anywhere, "FROM t") == rows(anywhere, "FROM v") == [(1,)]
    assert rows(anywhere, count) == [(20000,)]
    for name, value in (("v", 1), ("w", 3), ("own.v", 2), ("'OWN.v'", 2), ("query_table('v')", 1), ("query_table('own' || '.v')", 2)):
        if name != "'OWN.v'":
            assert by_itself(anywhere, here, f"(SELECT max(id) FROM {name})") == [value], name
    with pytest.raises(brantlib.BrantError, match="no_such"):
        anywhere.run(use.format("no_such"))
    assert rows(anywhere, count) == [(20000,)]


def test_a_computed_name_beside_tables_in_memory(anywhere, here):
    for text in ("CREATE TABLE t AS SELECT 4 AS id", "CREATE VIEW other AS FROM t", "CREATE VIEW v AS SELECT 5 AS id"):
        anywhere.run(text)
    assert by_itself(anywhere, here, "(SELECT max(id) FROM query_table('v' || ''))") == [5]
    assert by_itself(anywhere, here, "(SELECT max(id) FROM query_table('oth' || 'er'))") == [4]


WORDS = ["CREATE TABLE kept (view INT)", "CREATE TABLE kept AS SELECT 1 AS macro", "CREATE TYPE kept AS ENUM ('view')", "CREATE TEMP TABLE kept (function INT)",
         "CREATE SEQUENCE kept -- a view", "CREATE INDEX kept ON base (view)", "ALTER TABLE base RENAME COLUMN view TO macro",
                 "CREATE SCHEMA another /* macro */",
         "COMMENT ON TABLE base IS 'no view'", "COMMENT ON COLUMN base.view IS 'x'", "DROP TABLE base", "ALTER TABLE base ADD COLUMN view2 INT"]


@pytest.mark.parametrize("statement", WORDS)
def test_words_of_other_statements_make_no_views(local, here, statement):
    """What a statement is about is the word behind CREATE, not one of its names: executors get views and macros, and no tables."""
    local.run("CREATE TABLE base (view INT, a INT)")
    local.run(statement)
    assert [r[1] for r in whole(local, f"SELECT row(1, 'x') AS r, count(*) AS kept, any_value(1) AS base FROM '{here}/facts/*.parquet' GROUP BY 1")] == [20000]


def test_the_time_zone_of_the_caller(here, monkeypatch):
    """Executors compute in the zone of the session, not in that of the machine they run on."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    with brantlib.Session(workers=1, threads=1, distribute="always") as s:
        zone = rows(s, "SELECT current_setting('TimeZone') AS z")[0][0]
        sql = "SELECT DISTINCT (TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_seconds(a))::VARCHAR AS t FROM '%s/one/*.parquet' WHERE a = 0"
        got = rows(s, sql % here)
        con = duckdb.connect()
        con.execute(f"SET TimeZone = '{zone}'")
        assert got == con.execute("SELECT TIMESTAMPTZ '2024-01-01 00:00:00+00'::VARCHAR").fetchall()


# ---- attached files

def make_store(path, number):
    with duckdb.connect(str(path)) as con:
        con.execute(f"CREATE TABLE t AS SELECT i AS id, {number} AS n FROM range(10) r(i)")


def test_attach_detach_attach_another(session, tmp_path):
    make_store(tmp_path / "one.duckdb", 1)
    make_store(tmp_path / "two.duckdb", 2)
    session.run(f"ATTACH '{tmp_path}/one.duckdb' AS st")
    for _ in range(2):
        assert rows(session, "SELECT sum(n) FROM st.t") == [("10",)]
    session.run(f"ATTACH '{tmp_path}/two.duckdb'")
    assert rows(session, "SELECT st.t.n + two.t.n, count(*) FROM st.t JOIN two.t USING (id) GROUP BY 1") == [(3, 10)]
    session.run("DETACH st")
    with pytest.raises(brantlib.BrantError):
        session.run("SELECT * FROM st.t")
    session.run("DETACH two")
    session.run(f"ATTACH '{tmp_path}/two.duckdb' AS st (READ_ONLY)")
    assert rows(session, "SELECT sum(n) FROM st.t") == [("20",)]
    session.run(f"ATTACH OR REPLACE '{tmp_path}/one.duckdb' AS st")
    assert rows(session, "SELECT sum(n) FROM st.t") == [("10",)]
    with pytest.raises(brantlib.BrantError):  # it is there
        session.run(f"ATTACH '{tmp_path}/two.duckdb' AS st")
    with pytest.raises(brantlib.BrantError):  # read-only
        session.run("INSERT INTO st.t VALUES (1, 1)")
    session.run("DETACH st")


def test_attach_odd_names(session, tmp_path):
    path = tmp_path / "it's (a) \"name\" [1].duckdb"
    make_store(path, 3)
    quoted = str(path).replace("'", "''")
    session.run(f"ATTACH '{quoted}' AS \"my st\"\"ore\"")
    assert rows(session, 'SELECT sum(n), count(*) FROM "my st""ore".t WHERE id < 4') == [("12", 4)]
    session.run('DETACH "my st""ore"')


def test_use(session, here, tmp_path):
    make_store(tmp_path / "used.duckdb", 4)
    session.run(f"ATTACH '{tmp_path}/used.duckdb' AS used")
    session.run("USE used")
    try:
        assert rows(session, "SELECT sum(n) FROM t") == [("40",)]
        assert whole(session, f"SELECT count(*) FROM t JOIN read_csv(concat('{here}/text/a', '.csv')) c ON c.id = t.id") == [(10,)]
    finally:
        session.run("USE memory")
        session.run("DETACH used")


# ---- in memory

def test_tables_in_memory(local, here):
    local.run("CREATE TABLE t AS SELECT i AS id, i % 3 AS k FROM range(100) r(i)")
    local.run("INSERT INTO t VALUES (1000, NULL)")
    p = plan(local, "SELECT k, count(*) FROM t GROUP BY k")
    assert p["local"] and "table t lives in the memory of this process" in p["reason"]
    table, stats = local.run(f"SELECT t.k, count(*) AS n, sum(f.x) AS s FROM t LEFT JOIN '{here}/facts/*.parquet' f USING (id) GROUP BY t.k ORDER BY t.k")
    assert not stats.distributed
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i AS id, i % 3 AS k FROM range(100) r(i)")
    con.execute("INSERT INTO t VALUES (1000, NULL)")
    want = con.execute(f"SELECT t.k, count(*) AS n, sum(f.x) AS s FROM t LEFT JOIN '{here}/facts/*.parquet' f USING (id) GROUP BY t.k ORDER BY t.k").fetchall()
    assert [tuple(r.values()) for r in table.to_pylist()] == want
    local.run("UPDATE t SET k = 7 WHERE id < 50")
    local.run("DELETE FROM t WHERE id = 1000")
    assert rows(local, "SELECT k, count(*) FROM t GROUP BY k ORDER BY k") == [(0, 17), (1, 16), (2, 17), (7, 50)]
    local.run("CREATE TEMP TABLE tt AS SELECT 5 AS five")
    assert rows(local, "SELECT five, count(*) FROM tt, t GROUP BY five") == [(5, 100)]
    assert rows(local, f"SELECT count(*) FROM read_csv(concat('{here}/text/a', '.csv')) JOIN t USING (id)") == [(100,)]
    local.run("CREATE VIEW over AS SELECT k, count(*) AS n FROM t GROUP BY k")
    assert rows(local, "SELECT max(n) FROM over") == [(50,)]
    local.run("CREATE TYPE size AS ENUM ('s', 'm', 'l')")
    assert rows(local, "SELECT 'm'::size AS z, 'l'::size > 's'::size AS b") == [("m", True)]
    local.run("DROP TABLE tt")
    with pytest.raises(brantlib.BrantError, match="tt"):
        local.run("SELECT * FROM tt")


def test_insert_from_files_and_copy(local, here, tmp_path):
    local.run("CREATE TABLE t (id BIGINT, name VARCHAR)")
    local.run(f"INSERT INTO t SELECT id, name FROM '{here}/facts/*.parquet' WHERE id < 10")
    local.run(f"COPY (SELECT * FROM t ORDER BY id) TO '{tmp_path}/o.parquet'")
    assert duckdb.sql(f"SELECT count(*), min(id), max(name) FROM '{tmp_path}/o.parquet'").fetchall() == [(10, 0, "name 91")]
    assert rows(local, f"SELECT count(*) FROM '{tmp_path}/o.parquet'") == [(10,)]


def test_a_transaction(local):
    local.run("CREATE TABLE t (a INT)")
    local.run("BEGIN")
    local.run("INSERT INTO t VALUES (1)")
    local.run("ROLLBACK")
    assert rows(local, "SELECT count(*) FROM t") == [(0,)]


# ---- statements about statements

def test_describe_show_explain_prepare(session, here):
    session.run(f"CREATE OR REPLACE VIEW about AS SELECT id, st FROM '{here}/facts/*.parquet'")
    assert [r[:2] for r in rows(session, "DESCRIBE about")] == [("id", "BIGINT"), ("st", "STRUCT(a INTEGER, b VARCHAR)")]
    assert ("about",) in rows(session, "SHOW TABLES")
    for explain in ("EXPLAIN", "explain analyze", "EXPLAIN (ANALYZE, FORMAT TEXT)"):
        lines = [r[0] for r in rows(session, f"{explain} SELECT st.a, count(*) FROM about GROUP BY st.a")]
        assert lines[0].startswith("stage 1: ") and any("<- HASH" in line for line in lines)
        assert any("Measured" in line for line in lines) == ("analy" in explain.lower())
    plan = json.loads("\n".join(r[0] for r in rows(session, "EXPLAIN (FORMAT JSON) (SELECT id FROM about)")))
    assert len(plan["stages"]) == 1
    own = str(rows(session, "EXPLAIN (DUCKDB) SELECT * FROM about")).upper()
    assert "PARQUET_SCAN" in own.replace("READ_PARQUET", "PARQUET_SCAN")
    with pytest.raises(brantlib.BrantError):
        session.run("EXPLAIN SELECT nope FROM about")
    session.run("PREPARE p AS SELECT count(*) AS n FROM about WHERE id < $1")
    assert rows(session, "EXECUTE p(12)") == [(12,)]
    session.run("DEALLOCATE p")


def test_describe_runs_nothing(session, here):
    for sql in (f"DESCRIBE SELECT id, error('never') AS e FROM '{here}/facts/*.parquet'", f"DESCRIBE '{here}/facts/*.parquet'", "SHOW TABLES"):
        table, stats = session.run(sql)
        assert not stats.distributed
        assert table.column_names == duckdb.sql(sql).columns
        if "SHOW" not in sql:
            assert [tuple(r.values()) for r in table.to_pylist()] == duckdb.sql(sql).fetchall()


EXACT = ("column_name", "column_type", "min", "max", "approx_unique", "count", "null_percentage")


@pytest.mark.parametrize("what, spread", [
    ("'{}/one/*.parquet'", True), ("SELECT id, name, x FROM '{}/facts/*.parquet' WHERE id % 3 = 0 -- some", True),
    ("(SELECT id AS \"a b\", g + 1 AS c FROM '{}/facts/*.parquet');", True), ("from '{}/facts/*.parquet' select id, g, ts, l WHERE id < 0", True),
    ("SELECT id FROM '{}/facts/*.parquet'", False), ("SELECT id, id + random() AS r FROM '{}/facts/*.parquet'", False),
    ("SELECT g, count(*) AS n FROM '{}/facts/*.parquet' GROUP BY g", False)])
def test_summarize(session, here, what, spread):
    """Some columns a task; quartiles are approximate, mean and deviation depend on the order of the rows."""
    sql = "SUMMARIZE " + what.format(here)
    table, stats = session.run(sql)
    want = duckdb.sql(sql).to_arrow_table()
    assert table.column_names == want.column_names and table.schema.types == want.schema.types
    for got, right in zip(table.to_pylist(), want.to_pylist(), strict=True):
        if got["column_name"] == "r":
            continue
        assert {k: got[k] for k in EXACT} == {k: right[k] for k in EXACT}
        for k in ("avg", "std", "q25", "q50", "q75"):
            assert (got[k] is None) == (right[k] is None), (got, right)
            if k in ("avg", "std") and got[k] is not None and right[k].replace(".", "").isdigit():
                assert float(got[k]) == pytest.approx(float(right[k]))
    assert stats.distributed and (stats.stages > 3) == spread
    view = session.run("CREATE OR REPLACE VIEW summed AS " + ("FROM " if what.startswith("'") else "") + what.format(here).strip(";").split("--")[0])
    assert view and session.run("SUMMARIZE summed")[1].stages > 3 or not spread
    session.run("DROP VIEW summed")


def test_an_error_leaves_the_session_usable(session, here):
    for bad in ("SELECT nope", "SELEC", f"SELECT s::INT FROM '{here}/facts/*.parquet'", "SELECT * FROM '/no/such.parquet'", "DROP VIEW no_such"):
        with pytest.raises(brantlib.BrantError):
            session.run(bad)
        assert rows(session, "SELECT 1 AS a") == [(1,)]


def test_a_file_that_comes_and_changes_between_statements(session, tmp_path):
    """Footers are cached: by size and time of the file."""
    con = duckdb.connect()
    con.execute(f"COPY (SELECT i AS a FROM range(10) r(i)) TO '{tmp_path}/f.parquet'")
    assert rows(session, f"SELECT sum(a) FROM '{tmp_path}/*.parquet'") == [("45",)]
    con.execute(f"COPY (SELECT i * 2 AS a, 'x' AS b FROM range(1000) r(i)) TO '{tmp_path}/f.parquet'")
    assert rows(session, f"SELECT sum(a), max(b) FROM '{tmp_path}/*.parquet'") == [("999000", "x")]
    con.execute(f"COPY (SELECT 7 AS a, 'y' AS b) TO '{tmp_path}/g.parquet'")
    assert rows(session, f"SELECT sum(a), max(b), count(*) FROM '{tmp_path}/*.parquet'") == [("999007", "y", 1001)]


def test_small_queries_run_here_unless_told_otherwise(here):
    with brantlib.Session(workers=2, threads=1, distribute="auto") as s:
        sql = f"SELECT g, count(*) AS n FROM '{here}/facts/*.parquet' GROUP BY g"
        table, stats = s.run(sql)
        assert not stats.distributed and table.num_rows == 8
        s.set("small_bytes", "1kB")
        again, stats = s.run(sql)
        assert stats.distributed and sorted(again.to_pylist(), key=str) == sorted(table.to_pylist(), key=str)
