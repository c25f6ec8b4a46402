# SPDX-License-Identifier: Apache-2.0
"""CSV and JSON files: every row once and as DuckDB reads it, however files are cut; what can't be cut says so."""
import gzip
import json
import random
import time

import duckdb
import pytest

import brantlib
from compare import same_value

TEXTS = ["", "a", "x,y", 'say "hi"', "two\nlines", "tail\r\nof", "ünïcödé ✓", "  padded ", "'single'", "back\\slash", ",", '"', "1", "null"]


def make_csv(path, rows, seed, delimiter=",", escape=None, end="\n", header=True, quote_all=False):
    draw = random.Random(seed)
    out = [delimiter.join(["id", "name", "amount", "day"])] if header else []
    for i in range(rows):
        text = draw.choice(TEXTS) + (draw.choice(TEXTS) if draw.random() < 0.3 else "")
        if draw.random() < 0.1:
            field = ""
        elif quote_all or any(c in text for c in delimiter + '"\r\n') or text != text.strip():
            body = text.replace("\\", "\\\\").replace('"', '\\"') if escape == "\\" else text.replace('"', '""')
            field = f'"{body}"'
        else:
            field = text
        day = f"2024-{i % 12 + 1:02d}-{i % 28 + 1:02d}"
        out.append(delimiter.join([str(i + seed * 1000000), field, f"{draw.randrange(100000) / 100}", day]))
    path.write_bytes((end.join(out) + end).encode())


def make_json(path, rows, seed):
    draw = random.Random(seed)
    with open(path, "w") as f:
        for i in range(rows):
            row = {"id": i + seed * 1000000, "text": draw.choice(TEXTS)}
            row["nested"] = {"a": [draw.randrange(9) for _ in range(i % 4)], "b": None if i % 3 else "z"}
            if i % 7 == 0:
                row.pop("text")
            f.write(json.dumps(row, ensure_ascii=bool(i % 2)) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    d = tmp_path_factory.mktemp("text")
    make_csv(d / "one.csv", 3000, 1)
    make_csv(d / "semi.csv", 2000, 2, delimiter=";", quote_all=True)
    make_csv(d / "back.csv", 2000, 3, delimiter="|", escape="\\", quote_all=True)
    make_csv(d / "crlf.csv", 2000, 4, end="\r\n")
    for k in range(4):
        make_csv(d / f"part-{k}.csv", 500 * k + 50, 10 + k)
    (d / "empty.csv").write_text("")
    (d / "plain.csv").write_text("k,v\n" + "".join(f"{i},{i * i % 97}\n" for i in range(20000)))
    (d / "plain2.csv").write_text("k,v\n" + "".join(f"{i},{i * i % 97}\n" for i in range(20000, 25000)))
    (d / "plain.csv.gz").write_bytes(gzip.compress((d / "plain.csv").read_bytes()))
    (d / "other.csv").write_text("v,k\n" + "".join(f"{i * i % 97},{i}\n" for i in range(100)))
    (d / "blank.csv").write_text("a,b\n" + "".join(f'{i}, "q{i}"\n' for i in range(3000)))
    for year in (2023, 2024):
        (d / f"year={year}").mkdir()
        make_csv(d / f"year={year}" / "x.csv", 700, year)
        make_json(d / f"year={year}" / "x.ndjson", 700, year)
    make_json(d / "one.ndjson", 3000, 1)
    make_json(d / "two.jsonl", 2000, 2)
    (d / "one.json.gz").write_bytes(gzip.compress((d / "one.ndjson").read_bytes()))
    (d / "array.json").write_text(json.dumps([{"id": i, "t": TEXTS[i % len(TEXTS)]} for i in range(500)]))
    (d / "pretty.json").write_text("".join(json.dumps({"id": i, "t": "x"}, indent=2) + "\n" for i in range(500)))
    (d / "dates.ndjson").write_text("".join(json.dumps({"id": i, "d": f"{i % 28 + 1:02d}/{i % 12 + 1:02d}/2024"}) + "\n" for i in range(500)))
    (d / "iso.ndjson").write_text("".join(json.dumps({
        "id": i, "d": f"2024-{i % 12 + 1:02d}-{i % 28 + 1:02d}", "t": f"2024-01-01 00:00:{i % 60:02d}"}) + "\n" for i in range(1500)))
    (d / "numbers.json").write_text("".join(f"{i}\n" for i in range(500)))
    return d


@pytest.fixture(scope="module", params=[700, 20000])
def cutting(request):
    """Splits of a few rows; of a few hundred."""
    with brantlib.Session(workers=3, threads=1, distribute="always", settings={"split_bytes": request.param}) as s:
        s.small = request.param == 700
        yield s


def tasks(session, sql):
    """Tasks of the widest stage that scans."""
    return max(st["tasks"] for st in json.loads(session.explain(sql, json=True))["stages"] if st["scans"])


def same(session, sql):
    try:
        want = duckdb.connect().execute(sql).fetchall()
    except duckdb.Error:
        with pytest.raises(brantlib.BrantError):
            session.run(sql)
        return
    got = [tuple(r.values()) for r in session.run(sql)[0].to_pylist()]
    assert len(got) == len(want), sql
    key = repr
    for a, b in zip(sorted(got, key=key), sorted(want, key=key)):
        assert same_value(a, b), (sql, a, b)


CUT = ["one.csv", "semi.csv", "back.csv", "crlf.csv", "plain.csv", "one.ndjson", "two.jsonl", "iso.ndjson"]


@pytest.mark.parametrize("name", CUT)
def test_one_file_is_cut_and_read_once(cutting, folder, name):
    sql = f"SELECT * FROM '{folder / name}'"
    same(cutting, sql)
    assert tasks(cutting, sql) > 1


@pytest.mark.parametrize("call", [
    "read_csv('{}/part-*.csv')", "read_csv(['{0}/plain.csv', '{0}/plain2.csv'])", "read_csv(['{0}/empty.csv', '{0}/plain.csv'])",
    "read_csv('{}/plain.csv.gz')", "read_csv(['{0}/plain.csv', '{0}/plain.csv.gz'])", "read_csv('{}/year=*/x.csv')",
    "read_csv('{}/year=*/x.csv', hive_partitioning = false)", "read_csv('{}/part-*.csv', filename = true)",
    "read_csv('{}/plain.csv', header = false)", "read_csv('{}/plain.csv', skip = 3)", "read_csv('{}/one.csv', all_varchar = true, nullstr = ['null', '1'])",
    "read_csv('{}/plain.csv', columns = {{'a': 'INTEGER', 'b': 'DOUBLE'}}, header = true)",
    "read_csv('{}/plain.csv', names = ['p', 'q'], types = {{'q': 'VARCHAR'}})",
    "read_csv('{}/one.csv', dateformat = '%Y-%m-%d', strict_mode = false)", "read_csv('{}/blank.csv')", "read_csv(['{0}/plain.csv', '{0}/other.csv'])",
    "read_csv(['{0}/plain.csv', '{0}/other.csv'], union_by_name = true)", "read_csv('{}/plain.csv', normalize_names := true, sample_size => 50)",
    "read_json('{}/*.json.gz')", "read_json('{}/array.json')", "read_json('{}/pretty.json')", "read_json('{}/dates.ndjson')", "read_json('{}/numbers.json')",
    "read_ndjson('{}/one.ndjson')", "read_ndjson_objects('{}/one.ndjson')", "read_json_objects('{}/array.json')", "read_json('{}/year=*/x.ndjson')",
    "read_ndjson(['{0}/one.ndjson', '{0}/two.jsonl'], filename = true)", "read_json('{}/one.ndjson', columns = {{'id': 'BIGINT', 'text': 'VARCHAR'}})",
    "read_json('{}/one.ndjson', format = 'newline_delimited', maximum_depth = 1)", "read_json('{}/one.ndjson', records = false)",
])
def test_calls_and_options(cutting, folder, call):
    same(cutting, f"SELECT * FROM {call.format(folder)}")


@pytest.mark.parametrize("value", ["false", "0", "'no'", "(false)", "0::BOOLEAN", "true, strict_mode = false"])
def test_strict_mode_that_is_off_however_it_is_written(cutting, folder, value):
    """Where a quote ends is not certain then: the file is not cut."""
    sql = f"SELECT * FROM read_csv('{folder}/one.csv', strict_mode = "
    same(cutting, f"{sql}{value})")
    assert tasks(cutting, f"{sql}{value})") == 1 < tasks(cutting, f"{sql}true)")


def test_what_can_be_cut_is(cutting, folder):
    for call, several in [("read_csv('{}/plain.csv.gz')", False), ("read_json('{}/array.json')", False), ("read_json('{}/pretty.json')", False),
                          ("read_csv(['{0}/plain.csv', '{0}/plain.csv.gz'])", True), ("read_csv(['{0}/plain.csv', '{0}/other.csv'])", False),
                          ("read_ndjson_objects('{}/one.ndjson')", True), ("read_csv('{}/year=*/x.csv')", True)]:
        n = tasks(cutting, f"SELECT * FROM {call.format(folder)}")
        assert (n > 1) == several, (call, n)


def test_in_queries(cutting, folder):
    for sql in [
            "SELECT t.name, count(*), sum(amount) FROM '{0}/one.csv' t GROUP BY ALL",
            "SELECT count(*) FROM '{0}/one.csv'", "SELECT one.id FROM '{0}/one.csv' WHERE one.id % 7 = 3",
            "SELECT a.k, b.v FROM '{0}/plain.csv' a JOIN read_csv('{0}/plain2.csv') b ON a.v = b.v WHERE a.k < 300 AND b.k < 20300",
            "SELECT read_csv.k FROM read_csv('{0}/plain.csv') ORDER BY k DESC LIMIT 5", "SELECT x, y FROM read_csv('{0}/plain.csv') u(x, y) WHERE y = 4",
            "SELECT p.k FROM '{0}/plain.csv' p, '{0}/one.csv' o WHERE p.k = o.id - 1000000",
            "SELECT count(*) FROM '{0}/plain.csv' WHERE k IN (SELECT id - 1000000 FROM '{0}/one.ndjson')",
            "WITH t AS (SELECT * FROM '{0}/one.ndjson') SELECT nested.b, count(*) FROM t GROUP BY ALL UNION ALL SELECT 'all', count(*) FROM t",
            "SELECT u, count(*) FROM (SELECT unnest(nested.a) AS u FROM '{0}/one.ndjson') GROUP BY ALL",
            "SELECT max(k) FROM (SELECT * FROM '{0}/plain.csv' UNION ALL SELECT * FROM '{0}/plain2.csv')"]:
        same(cutting, sql.format(folder))


def test_views(cutting, folder):
    """A view over CSV is split too, and small queries read it where they are."""
    cutting.run(f"CREATE OR REPLACE VIEW texts AS SELECT * FROM '{folder}/plain.csv'")
    table, stats = cutting.run("SELECT v, count(*) AS n FROM texts GROUP BY v ORDER BY v")
    want = duckdb.connect().execute(f"SELECT v, count(*) FROM '{folder}/plain.csv' GROUP BY v ORDER BY v").fetchall()
    assert [tuple(r.values()) for r in table.to_pylist()] == want
    assert stats.distributed and tasks(cutting, "SELECT v, count(*) AS n FROM texts GROUP BY v") > 1
    with brantlib.Session(workers=1, distribute="never") as here:
        here.run(f"CREATE VIEW texts AS SELECT * FROM '{folder}/one.csv'")
        assert here.run("SELECT count(*), sum(id) FROM texts")[0].to_pylist() == [{"count_star()": 3000, "sum(id)": sum(range(1000000, 1003000))}]


@pytest.mark.parametrize("text, what", [("k,v\n1,2\nx,3\n" * 1, "x"), ("k,v\n" + "1,2\n" * 30000 + "bad,2\n", "bad")])
def test_a_bad_value_is_named(cutting, tmp_path, text, what):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(brantlib.BrantError) as e:
        cutting.run(f"SELECT sum(k) FROM read_csv('{tmp_path}/bad.csv', types = {{'k': 'BIGINT'}})")
    assert what in e.value.message and e.value.code == "EXECUTION"


def test_missing_file(cutting, folder):
    for sql in [f"SELECT * FROM '{folder}/none.csv'", f"SELECT * FROM read_json('{folder}/none*.json')"]:
        with pytest.raises(brantlib.BrantError) as e:
            cutting.run(sql)
        assert "none" in e.value.message


def test_random_files(cutting, tmp_path):
    """Files of every dialect with cuts everywhere."""
    for seed in range(12):
        draw = random.Random(seed)
        end, delimiter = draw.choice(["\n", "\r\n"]), draw.choice(",;|\t")
        escape = draw.choice([None, "\\"])
        path = tmp_path / f"r{seed}.csv"
        make_csv(path, draw.randrange(1, 1500), seed, delimiter=delimiter, escape=escape, end=end, quote_all=escape is not None or draw.random() < 0.5)
        escaped = "'\\'" if escape else "'\"'"
        same(cutting, f"SELECT * FROM read_csv('{path}', delim = '{delimiter}', quote = '\"', escape = {escaped}, header = true)")


def test_many_files_that_are_one_part(tmp_path):
    """Nobody looks into each of them before the task that reads them all does."""
    for i in range(900):
        (tmp_path / f"{i:03}.csv").write_text(f"i,s\n{i},row {i}\n{-i},\n")
    sql = f"SELECT count(*) AS n, sum(i) AS i, count(s) AS s FROM '{tmp_path}/*.csv'"
    begin = time.monotonic()
    want = duckdb.connect().execute(sql).fetchall()
    read = time.monotonic() - begin
    with brantlib.Session(workers=2, threads=1, distribute="always") as s:
        s.explain("SELECT 1")
        begin = time.monotonic()
        s.explain(sql)
        assert time.monotonic() - begin < 2 * read + 1
        assert [tuple(r.values()) for r in s.run(sql)[0].to_pylist()] == want


@pytest.mark.parametrize("levels", [47, 48, 90])
def test_nested_deep(cutting, tmp_path, levels):
    """What is too deep for a schema of Arrow IPC is an error, and nothing waits for it."""
    (tmp_path / "deep.ndjson").write_text('{"a": ' + "[" * levels + "1" + "]" * levels + "}\n")
    sql = f"SELECT * FROM read_json('{tmp_path}/deep.ndjson', maximum_depth = -1)"
    if levels <= 47:
        assert cutting.run(sql)[0].num_rows == 1
        return
    with pytest.raises(brantlib.BrantError, match="nested (deeper|more) than"):
        cutting.run(sql)
