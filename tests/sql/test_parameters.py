# SPDX-License-Identifier: Apache-2.0
"""Parameters ($1, ?, $name): PREPARE and EXECUTE in scripts, --param of the command, params in Python (tests/python/test_sql_params.py) and the
C API (tests/unit/test_brant_api.c). The answers are DuckDB's own, names and types of columns included."""
import json
import os
import re
import subprocess
import sys

import brantlib
import duckdb
import files
import pytest


@pytest.fixture(scope="module")
def here():
    return files.make()


@pytest.fixture(scope="module", params=["staged", "eager"])
def session(request):
    with brantlib.Session(workers=3, threads=1, distribute="always", mode=request.param, settings={"TimeZone": "UTC"}) as s:
        yield s


@pytest.fixture(scope="module")
def con():
    c = duckdb.connect()
    c.execute("SET TimeZone = 'UTC'")
    return c


def both(session, con, prepare, execute, distributed=True):
    for run in (session.run, con.execute):
        run(prepare)
    table, stats = session.run(execute)
    want = con.execute(execute).to_arrow_table()
    assert table.column_names == want.column_names, execute
    assert table.schema.types == want.schema.types, execute
    assert table.to_pylist() == want.to_pylist()
    assert bool(stats.distributed) == distributed
    for run in (session.run, con.execute):
        run("DEALLOCATE p")
    return table.to_pylist()


@pytest.mark.parametrize("statement, arguments", [
    ("SELECT count(*) AS n FROM {} WHERE id < $1", "(12)"),
    ("SELECT count(*), $1, 1 + $1, id % $2 FROM {} GROUP BY ALL ORDER BY ALL", "(12, 5)"),
    ("SELECT id, ? AS a, ? FROM {} WHERE id BETWEEN ? AND ? ORDER BY id", "('x', NULL, 5, 9)"),
    ("SELECT $name || s AS n, id FROM {} WHERE id IN ($a, $b) ORDER BY id", "(b := 7, NAME := 'it''s ', a := 3)"),
    ("SELECT id FROM {} ORDER BY id LIMIT ? OFFSET ?", "(3, 2 + 2)"),
    ("SELECT sum(id + $1) AS s, typeof(any_value($1)) AS t FROM {}", "(1.5)"),
    ("SELECT sum(id + $1) AS s, typeof(any_value(g + $1)) AS t FROM {}", "(5::HUGEINT)"),
    ("SELECT count(*) AS n FROM {} WHERE day < $1", "('2024-01-05')"),
    ("SELECT count(*) AS n FROM {} WHERE day < $1 AND tz > $2", "(DATE '2024-01-05', '2024-03-31 00:00:10+00')"),
    ("SELECT list_contains($1, g) AS c, count(*) AS n FROM {} GROUP BY ALL ORDER BY ALL", "([1, 2, 3])"),
    ("SELECT $1.a + id AS v, $2['k'] AS w FROM {} WHERE id < 3 ORDER BY id", "({{'a': 5}}, MAP {{'k': [1, NULL]}})"),
    ("SELECT count(DISTINCT $1) AS n FROM {}", "(random())"),
    ("SELECT count(*) AS n FROM {} WHERE id < $1", "(least(abs(-20), 30))"),
    ("SELECT $1 AS a, '$2 ?' AS b, $$ $3 ? $$ AS c, count(*) AS n /* ? */ FROM {} -- $4", "(TRUE)"),
    ("SELECT $1::INTERVAL AS i, $2::BLOB AS b, $3 AS e FROM {} LIMIT 1", "('3 days', '\\x00\\xff', '')"),
    ("SELECT ?2, ?1, count(*) AS n FROM {}", "('a', 'b')"),
    ("SELECT $1 AS a, length($1) AS n, count(*) AS c FROM {} WHERE s < $1", "('z' || chr(0) || 'it''s' || chr(0))"),
    ("SELECT $1 AS a, $2 AS b, count(*) AS c FROM {} GROUP BY ALL", "([lower('A, ]'), chr(0), NULL, 'null', ''], {{'a': abs(-1), 'b c': [upper('\"')]}})"),
    ("SELECT $1 AS a, $2 AS b, count(*) AS c FROM {} GROUP BY ALL", "(MAP {{lower('K'): NULL, '': 'v'}}, [[now()], []] = [[now()], []])"),
    ("FROM {} SELECT max(id) AS m WHERE id <$1AND id>$2", "(100, -5)")])
def test_execute(session, con, here, statement, arguments):
    arguments = arguments.replace("{{", "{").replace("}}", "}")
    both(session, con, "PREPARE p AS " + statement.format(f"'{here}/facts/*.parquet'"), "EXECUTE p" + arguments)


def test_a_call_is_evaluated_once(session, here):
    """DuckDB's own EXECUTE takes no nextval at all."""
    session.run("CREATE OR REPLACE SEQUENCE counter")
    session.run(f"PREPARE p AS SELECT $1 AS a, $2 AS b, $1 + 1 AS c, count(*) AS n FROM '{here}/facts/*.parquet' GROUP BY ALL")
    for first in (1, 3):
        rows = session.run("EXECUTE p(nextval('counter'), [nextval('counter')])")[0].to_pylist()
        assert [(r["a"], r["b"], r["c"]) for r in rows] == [(first, [first + 1], first + 1)]
    with pytest.raises(brantlib.BrantError, match="(?i)syntax"):
        session.run("EXECUTE p(1, [2]) or else")
    session.run("DEALLOCATE p")
    session.run("DROP SEQUENCE counter")
    assert session.run("SELECT getvariable('brant_argument') AS v")[0].to_pylist() == [{"v": None}]


def test_semicolons_end_a_statement(session, con, here):
    both(session, con, f"PREPARE p AS SELECT 1 + $1, count(*) FROM '{here}/facts/*.parquet' ; -- done", "EXECUTE p(5) ;;")


def test_a_file_as_a_parameter(session, con, here):
    both(session, con, "PREPARE p AS SELECT count(*) AS n FROM read_parquet($1)", f"EXECUTE p('{here}/facts/*.parquet')")


def test_without_parameters_and_again(session, con, here):
    both(session, con, f"PREPARE p AS SELECT max(id) AS m FROM '{here}/facts/*.parquet'", "EXECUTE p")
    session.run(f"PREPARE p AS SELECT count(*) AS n FROM '{here}/facts/*.parquet' WHERE id < $1")
    for n in (5, 50, 0):
        assert session.run(f"EXECUTE p({n})")[0].to_pylist() == [{"n": n}]
    session.run(f"PREPARE P AS SELECT -count(*) AS n FROM '{here}/facts/*.parquet' WHERE id < $1")  # the name again: another statement
    assert session.run("EXECUTE p(5)")[0].to_pylist() == [{"n": -5}]
    lines = [r["explain"] for r in session.run("EXPLAIN EXECUTE p(5)")[0].to_pylist()]
    assert lines[0].startswith("stage 1: ")
    assert len(json.loads(session.explain("EXECUTE p(5)", False, True))["stages"]) == 2
    session.run("DEALLOCATE PREPARE p")
    with pytest.raises(brantlib.BrantError, match='"p" does not exist'):
        session.run("EXECUTE p(5)")


def test_other_statements(session, con, here, tmp_path):
    for run in (session.run, con.execute):
        run("CREATE OR REPLACE TABLE t (a BIGINT, b VARCHAR)")
    both(session, con, "PREPARE p AS INSERT INTO t VALUES ($1, $2), ($1 + 1, $2)", "EXECUTE p(1, 'x')", False)
    both(session, con, f"PREPARE p AS INSERT INTO t SELECT id, $1 FROM '{here}/facts/*.parquet' WHERE id < $2", "EXECUTE p('y', 10)", True)
    both(session, con, "PREPARE p AS UPDATE t SET b = $1 WHERE a = $2", "EXECUTE p('z', 1)", False)
    both(session, con, "PREPARE p AS DELETE FROM t WHERE a = $1 RETURNING b", "EXECUTE p(2)", False)
    both(session, con, "PREPARE p AS SELECT *, $1 AS c FROM t ORDER BY ALL", "EXECUTE p(1)", False)
    session.run(f"PREPARE p AS COPY (SELECT id FROM '{here}/facts/*.parquet' WHERE id < $1) TO '{tmp_path}/out/' (FORMAT parquet)")
    assert sum(f["rows"] for f in session.run("EXECUTE p(7)")[0].to_pylist()) == 7
    session.run("DROP TABLE t")


@pytest.mark.parametrize("prepare, execute, message", [
    ("SELECT $1 + $2", "(1)", "(?i)not provided.*: 2|no value for the parameter"),
    ("SELECT $1", "(1, 2)", "(?i)excess"),
    ("SELECT $a", "(b := 1)", "(?i)not provided|excess"),
    ("SELECT $1 / 'x'", "(1)", "(?i)convert"),
    ("SELECT $1", "(nope)", "Only scalar parameters"),
    ("SELECT $1 + 1", "('x')", "STRING_LITERAL")])
def test_errors(session, here, prepare, execute, message):
    session.run(f"PREPARE p AS {prepare} FROM '{here}/facts/*.parquet'")
    with pytest.raises(brantlib.BrantError, match=message):
        session.run("EXECUTE p" + execute)
    session.run("DEALLOCATE p")


TEXTS = ("EXECUTE p(1, 'it''s, ) ')", "EXECUTE p(abs(-1), [lower('A, ('), NULL]) -- , (", "EXECUTE p(/* , ( */ 1 + 2, {'a': $$x,$$, \"b\": (1)})",
         "EXECUTE p(e'\\', (', map{'a': list_value(1, 2)}) ;")
BROKEN = ("EXECUTE p(", "EXECUTE p()", "EXECUTE p(,1)", "EXECUTE p(1,,2)", "EXECUTE p(1,)", "EXECUTE p(abs(1)]", "EXECUTE p(abs([1)])", "EXECUTE p(1))",
          "EXECUTE p(abs(1) x, 2)", "EXECUTE p(a := )", "EXECUTE p(a :=", "EXECUTE p(a := 1,", "EXECUTE p 1", "EXECUTE p(1, 2), (3)")


def outcome(run, sql):
    """The rows, or the kind of DuckDB's error."""
    try:
        return run(sql)
    except (brantlib.BrantError, duckdb.Error) as e:
        kind = re.search(r"\w[\w ]* Error(?=:)", str(e))
        return kind.group() if kind else str(e)


def outcomes(texts):
    """Run by itself: what doesn't end must not take this process's time and memory."""
    with brantlib.Session(workers=1, threads=1, distribute="never") as s:
        s.run("PREPARE p AS SELECT $1 AS a, $2 AS b")
        return [outcome(lambda sql: repr(s.run(sql)[0].to_pylist()), text) for text in texts]


def test_broken_texts(con):
    """Each beginning of a text ends, as it does with DuckDB: most with an error of its parser."""
    texts = [*BROKEN, *(text[:n] for text in TEXTS for n in range(len("EXECUTE p"), len(text) + 1))]
    code = "import json, resource, sys; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)); import test_parameters as t; " \
        "json.dump(t.outcomes(json.load(sys.stdin)), sys.stdout)"
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    p = subprocess.run([sys.executable, "-c", code], input=json.dumps(texts), capture_output=True, text=True, timeout=60, check=False,
                       env={**os.environ, "PYTHONPATH": path})
    assert p.returncode == 0, p.stderr[-2000:]
    con.execute("PREPARE p AS SELECT $1 AS a, $2 AS b")
    want = [outcome(lambda sql: repr(con.execute(sql).to_arrow_table().to_pylist()), text) for text in texts]
    con.execute("DEALLOCATE p")
    assert [x for x in zip(texts, json.loads(p.stdout), want) if x[1] != x[2]] == []
    assert want.count("Parser Error") > 100 and sum(x.startswith("[") for x in want) >= len(TEXTS)


def test_a_broken_text_has_no_effect(session):
    session.run("CREATE OR REPLACE SEQUENCE counter")
    session.run("PREPARE p AS SELECT $1 AS a")
    for text in ("EXECUTE p(nextval('counter')", "EXECUTE p(nextval('counter'),", "EXECUTE p(nextval('counter')) or else"):
        with pytest.raises(brantlib.BrantError, match="Parser Error"):
            session.run(text)
    assert session.run("EXECUTE p(nextval('counter'))")[0].to_pylist() == [{"a": 1}]
    with pytest.raises(brantlib.BrantError) as e:
        session.run("EXECUTE p(lower('x')::INTEGER)")
    assert "the value of $1: Conversion Error" in str(e.value) and "SET VARIABLE" not in str(e.value)
    session.run("DEALLOCATE p")
    session.run("DROP SEQUENCE counter")


@pytest.mark.parametrize("value, kind", [
    ("union_value(k := abs(-1))", "UNION(k INTEGER)"), ("[union_value(k := lower('A'))]", "UNION(k VARCHAR)[]"),
    ("row(abs(-1), 2)", "STRUCT(INTEGER, INTEGER)"), ("[row(1)]", "STRUCT(INTEGER)[]"), ("abs(-1)::VARIANT", "VARIANT")])
def test_values_that_no_text_tells(session, con, here, value, kind):
    """Their call stays in the text."""
    what = "variant_typeof($1)" if kind == "VARIANT" else "$1::VARCHAR"
    rows = both(session, con, f"PREPARE p AS SELECT {what} AS v, typeof($1) AS t, count(*) AS n FROM '{here}/facts/*.parquet' GROUP BY ALL",
                f"EXECUTE p({value})")
    assert rows[0]["t"] == kind


@pytest.mark.parametrize("value, first, second", [
    ("union_value(k := nextval('counter'))", "1", "2"), ("row(nextval('counter'), 'x')", "(1, x)", "(2, x)"), ("nextval('counter')::VARIANT", "1", "2"),
    ("[row(nextval('counter'))]", "[(1)]", "[(2)]")])
def test_calls_whose_values_no_text_tells(session, here, value, first, second):
    """nextval() is evaluated once for each EXECUTE, whatever its type: DuckDB's own EXECUTE can't, and ends its database over it."""
    session.run("CREATE OR REPLACE SEQUENCE counter")
    session.run(f"PREPARE p AS SELECT $1::VARCHAR AS a, $1::VARCHAR = any_value($1::VARCHAR) AS b, count(*) AS n FROM '{here}/facts/*.parquet' GROUP BY ALL")
    for shown in (first, second):
        assert session.run(f"EXECUTE p({value})")[0].to_pylist() == [{"a": shown, "b": True, "n": 20000}]
    assert session.run("SELECT count(*) AS n FROM duckdb_variables() WHERE name LIKE 'brant%'")[0].to_pylist() == [{"n": 0}]
    session.run("DEALLOCATE p")
    session.run("DROP SEQUENCE counter")


def test_several_statements_at_once(session):
    """None of them is run: not the first alone, nor the last."""
    session.run("CREATE OR REPLACE TABLE kept (a INT)")
    session.run("PREPARE p AS INSERT INTO kept VALUES ($1)")
    for text in ("EXECUTE p(1); EXECUTE p(2)", "SELECT 1 AS a; SELECT 2 AS a", "EXECUTE p(1); SELECT 2 AS a", "INSERT INTO kept VALUES (1); EXECUTE p(2);",
                 "EXPLAIN SELECT 1; EXECUTE p(1)", "COPY kept TO '/no/such'; EXECUTE p(1)", "CREATE VIEW one AS SELECT 1; EXECUTE p(1)"):
        with pytest.raises(brantlib.BrantError, match="several statements at once"):
            session.run(text)
    assert session.run("FROM kept")[0].to_pylist() == []
    session.run("EXECUTE p(1) ; ; -- ;")
    assert session.run("FROM kept")[0].to_pylist() == [{"a": 1}]
    session.run("DEALLOCATE p")
    session.run("DROP TABLE kept")


def test_errors_of_prepare(session, here):
    for sql, message in (("PREPARE p AS SELECT nope", "nope"), ("PREPARE p AS SELECT $a, ?", "(?i)mixing"), ("EXECUTE nobody(1)", "nobody"),
                         ("SELECT $1", "parameters without values")):
        with pytest.raises(brantlib.BrantError, match=message):
            session.run(sql)


# ---- the command

def brant(*args, code=0):
    p = subprocess.run([brantlib.BUILD / "brant", *args], capture_output=True, text=True, env={**os.environ, "TZ": "UTC"}, check=False)
    assert p.returncode == code, p.stderr
    return p.stdout if code == 0 else p.stderr


def test_command(here):
    facts = f"'{here}/facts/*.parquet'"
    always = ["sql", "--workers", "2", "--distribute", "always", "--format", "csv"]
    got = brant(*always, "--param", "n=12", "--param", "name=it's; $n", f"SELECT count(*) AS c, $name AS s, $n FROM {facts} WHERE id < $n")
    assert got == "c,s,$n\n12,it's; $n,12\n"
    assert brant("sql", "--format", "csv", "--param", "2:=5 * 2", "--param", "1=2024-01-01", "SELECT ?::DATE + 1 AS d, ? AS t") == "d,t\n2024-01-02,10\n"
    script = f"CREATE VIEW v AS FROM {facts}; SELECT count(*) AS n FROM v WHERE id < $a; " \
        "PREPARE p AS SELECT count(*) AS n FROM v WHERE g = $b; EXECUTE p(b := $a)"
    assert brant(*always, "--param", "a:=3", script) == "n\n3\nn\n2500\n"
    assert '= 3::BIGINT' in brant("explain", "--workers", "2", "--param", "a:=3", f"SELECT count(*) FROM {facts} WHERE id = $a")
    calls = ["sql", "--format", "csv", "--param", "a:=nextval('s')", "--param", "b:=union_value(k := nextval('s'))"]
    assert brant(*calls, "CREATE SEQUENCE s; SELECT $a AS x, $a AS y, $b IS NULL AS z; SELECT 7 AS w") == "x,y,z\n1,1,false\nw\n7\n"
    assert "no statement has $b" in brant("sql", "--param", "b=1", "SELECT $a", code=2)
    assert "no value for the parameter $c" in brant("sql", "--param", "a=1", "SELECT $a, $c", code=1)
    assert "NAME=TEXT or NAME:=SQL" in brant("sql", "--param", "a", "SELECT $a", code=2)
    assert "not one expression" in brant("sql", "--param", "a:=1), (2", "SELECT $a", code=1)
