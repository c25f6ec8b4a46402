# SPDX-License-Identifier: Apache-2.0
"""x <op> ANY | ALL (SELECT …): every type, operator and quantifier, with and without NULLs and correlation. What is right is put together
here from single comparisons by the definition (true for some row, else NULL for some row, else false; ALL: the opposite of the
opposite), since DuckDB's own joins have no answer for intervals, and some wrong ones."""
import duckdb
import pytest

import brantlib

# Each makes a value of the type out of a small integer `v`.
TYPES = {
    "BOOLEAN": "v % 2 = 0", "TINYINT": "v::TINYINT", "USMALLINT": "v::USMALLINT", "INTEGER": "v", "BIGINT": "v::BIGINT", "UBIGINT": "v::UBIGINT",
    "HUGEINT": "v::HUGEINT << 70", "UHUGEINT": "v::UHUGEINT", "FLOAT": "v / 3::FLOAT", "DOUBLE": "CASE v WHEN 3 THEN 'nan'::DOUBLE ELSE v / 7 END",
    "DECIMAL(4, 1)": "v::DECIMAL(4, 1)", "DECIMAL(18, 3)": "v::DECIMAL(18, 3)", "DECIMAL(38, 2)": "v::DECIMAL(38, 2)", "VARCHAR": "'n' || v",
    "BLOB": "('b' || v)::BLOB", "BIT": "v::BIT", "DATE": "DATE '2024-02-27' + v", "TIME": "TIME '01:00:00' + to_minutes(v)",
    "TIMETZ": "(TIME '01:00:00' + to_minutes(v))::TIMETZ", "TIMESTAMP": "TIMESTAMP '2024-02-27' + to_hours(v)",
    "TIMESTAMP_S": "(TIMESTAMP '2024-02-27' + to_hours(v))::TIMESTAMP_S", "TIMESTAMP_NS": "(TIMESTAMP '2024-02-27' + to_hours(v))::TIMESTAMP_NS",
    "TIMESTAMPTZ": "TIMESTAMPTZ '2024-02-27 00:00:00+00' + to_hours(v)", "UUID": "md5(v::VARCHAR)::UUID",
    # equal ones look different: 30 days are a month, 24 hours a day
    "INTERVAL": "(['1 month', '30 days', '720 hours', '0 days', '-1 day', '1 month -1 day', '29 days', '31 days'])[1 + v]::INTERVAL",
    "ENUM": "(['b', 'a', 'c', 'd', 'e', 'f', 'g', 'h'])[1 + v]::ENUM ('h', 'b', 'a', 'd', 'c', 'g', 'f', 'e')",
    "INTEGER[]": "[v, NULL, 1]", "VARCHAR[]": "[v::VARCHAR]", "INTERVAL[]": "[to_days(v)]",
    "STRUCT": "{'a': v // 2, 'b': 's' || v}", "STRUCT of INTERVAL": "{'a': to_days(30 * (v // 2)), 'b': v}", "JSON": "v::JSON",
}
OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    d = tmp_path_factory.mktemp("quantified")
    rows = {"a": [(i, i % 3 or None, None if i == 5 else i) for i in range(8)],
            "b": [(i, i % 3 or None, None if i % 4 == 3 else (i * 5) % 8) for i in range(6)]}
    for name, table in rows.items():
        for part in range(2):
            values = ", ".join(str(r).replace("None", "NULL") for r in table[part::2])
            duckdb.sql(f"COPY (SELECT id::INTEGER AS id, k::INTEGER AS k, v::INTEGER AS v FROM (VALUES {values}) t(id, k, v)) TO '{d}/{name}{part}.parquet'")
    return d


@pytest.fixture(scope="module")
def session():
    with brantlib.Session(workers=2, threads=1, distribute="always", settings={"partitions": 3}) as s:
        yield s


def tables(files, name):
    """Lists have no NULL on the left: behind one DuckDB's loop gives NULL for all rows."""
    some = " WHERE x IS NOT NULL" if name.endswith("[]") else ""
    read = "SELECT id, k, CASE WHEN v IS NOT NULL THEN %s END AS x FROM '%s/%s*.parquet'"
    return f"a AS (FROM ({read % (TYPES[name], files, 'a')}){some}), b AS ({read % (TYPES[name], files, 'b')})"


WHERE = {"true": lambda a, b: True, "b.k = a.k": lambda a, b: a[1] is not None and a[1] == b[1], "b.id > 100": lambda a, b: False,
         "b.x IS NOT NULL": lambda a, b: b[2]}


def questions():
    return [(where, op, quantifier) for where in WHERE for op in OPPOSITE for quantifier in ("ANY", "ALL")]


def asked(where, op, quantifier):
    return f"a.x {op} {quantifier} (SELECT b.x FROM b WHERE {where})"


@pytest.fixture(scope="module")
def right(files):
    """right(type): {question: {id: answer}}"""
    known = {}

    def of(name):
        if name not in known:
            head = f"WITH {tables(files, name)} "
            a = duckdb.sql(head + "SELECT id, k FROM a").fetchall()
            b = {r[0]: r for r in duckdb.sql(head + "SELECT id, k, x IS NOT NULL FROM b").fetchall()}
            single = f"{head}SELECT a.id, b.id, {', '.join(f'a.x {op} b.x' for op in OPPOSITE)} FROM a, b"
            compared = {r[:2]: dict(zip(OPPOSITE, r[2:])) for r in duckdb.sql(single).fetchall()}
            known[name] = {q: {r[0]: answer(q, r, b, compared) for r in a} for q in questions()}
        return known[name]
    return of


def answer(question, a, b, compared):
    where, op, quantifier = question
    if quantifier == "ALL":
        some = answer((where, OPPOSITE[op], "ANY"), a, b, compared)
        return None if some is None else not some
    found = [compared[a[0], i][op] for i, row in b.items() if WHERE[where](a, row)]
    return True if True in found else None if None in found else False


@pytest.mark.parametrize("name", TYPES)
def test_all_of_a_type(session, files, right, name):
    head = f"WITH {tables(files, name)} SELECT a.id, "
    for begin in range(0, 48, 24):
        some = questions()[begin:begin + 24]
        table, stats = session.run(head + ", ".join(f"({asked(*q)}) AS c{i}" for i, q in enumerate(some)) + " FROM a")
        assert stats.distributed
        got = [tuple(r.values()) for r in table.to_pylist()]
        for i, q in enumerate(some):
            assert {r[0]: r[1 + i] for r in got} == right(name)[q], (name, q)


@pytest.mark.parametrize("name", ["INTERVAL", "VARCHAR"])
@pytest.mark.parametrize("negated", ["", "NOT "])
def test_as_filters(session, files, right, name, negated):
    for q in questions():
        table, _ = session.run(f"WITH {tables(files, name)} SELECT id FROM a WHERE {negated}({asked(*q)})")
        assert sorted(table["id"].to_pylist()) == [i for i, x in sorted(right(name)[q].items()) if x is (not negated)], (name, negated, q)


@pytest.mark.parametrize("negated", ["", "NOT "])
def test_intervals_in_exists(session, files, negated):
    head = f"WITH {tables(files, 'INTERVAL')} "
    for op in OPPOSITE:
        found = {r[0] for r in duckdb.sql(f"{head}SELECT DISTINCT a.id FROM a, b WHERE (a.x {op} b.x) IS TRUE").fetchall()}
        table, _ = session.run(f"{head}SELECT id FROM a WHERE {negated}EXISTS (SELECT 1 FROM b WHERE a.x {op} b.x)")
        assert set(table["id"].to_pylist()) == (set(range(8)) - found if negated else found), op
