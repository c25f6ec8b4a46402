# SPDX-License-Identifier: Apache-2.0
"""CSV and JSON files in folders with names: those that a filter on the names rules out are in no task, and nobody looks into them."""
import json

import duckdb
import pytest

import brantlib

YEARS, CODES = (2022, 2023, 2024), ("007", "x y", "a-b", "__HIVE_DEFAULT_PARTITION__")
KINDS = ["csv", "ndjson"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    d = tmp_path_factory.mktemp("folders")
    for y in YEARS:
        for c in CODES:
            part = d / f"year={y}" / f"code={c}"
            part.mkdir(parents=True)
            (part / "a.csv").write_text("id,v,code2\n" + "".join(f"{y * 1000 + i},{i % 5 or ''},{i % 3}\n" for i in range(200)))
            (part / "a.ndjson").write_text("".join(json.dumps({"id": y * 1000 + i, "v": i % 5 or None, "code2": i % 3}) + "\n" for i in range(200)))
    return d


@pytest.fixture(scope="module", params=["staged", "eager"])
def session(request):
    with brantlib.Session(workers=3, threads=1, distribute="always", mode=request.param, settings={"split_bytes": 1500}) as s:
        yield s


def splits(session, sql):
    return sum(st["tasks"] for st in json.loads(session.explain(sql, json=True))["stages"] if st["scans"])


def rows(table):
    return sorted((tuple(r.values()) for r in table.to_pylist()), key=repr)


def check(session, sql):
    want = sorted(duckdb.connect().execute(sql).fetchall(), key=repr)
    assert rows(session.run(sql)[0]) == want, sql


def reader(kind, folder, options="", names="*/*"):
    return f"read_{'csv' if kind == 'csv' else 'json'}('{folder}/{names}/a.{kind}'{options})"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("condition, left", [
    ("true", 12), ("year = 2023", 4), ("year > 2022 AND code = '007'", 4), ("year IN (2022, 2024)", 8), ("year = 2023 AND v = 1", 4), ("year % 2 = 1", 4),
    ("code LIKE 'a%'", 9), ("code IS NULL", 6), ("code IS NOT NULL", 12), ("coalesce(code, 'none') <> '007'", 9), ("year = 2022 OR id % 7 = 0", 12),
    ("year + id > 0", 12), ("year = 1999", 0), ("year IS NULL", 0), ("year BETWEEN 2023 AND 2030 AND code2 = 1", 8), ("try_cast(code AS INTEGER) = 7", 9),
])
def test_folders_that_a_filter_rules_out(session, folder, kind, condition, left):
    """NULL and names with a blank are written in a way of their own: such files stay in, and their tasks decide."""
    source = reader(kind, folder)
    sql = f"SELECT year, code, id, v FROM {source} WHERE {condition}"
    check(session, sql)
    check(session, f"SELECT year, count(*), sum(id), count(v) FROM {source} WHERE {condition} GROUP BY year")
    check(session, f"SELECT count(*), min(code) FROM {source} WHERE {condition}")
    files = splits(session, f"SELECT year, code, id, v FROM {source} WHERE true") // 12
    assert files >= 1
    at_most = {"year > 2022 AND code = '007'": 6, "code IS NULL": 6}.get(condition, left)
    assert splits(session, sql) <= at_most * files and (splits(session, sql) > 0) == (left > 0), condition


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_ruled_out_is_not_read(session, folder, kind):
    bad = folder / "year=2023" / "code=007" / f"a.{kind}"
    text = bad.read_text()
    try:  # the types come of all files, so what is wrong lies behind what is looked at for them
        sql = f"SELECT count(*) AS n, sum(id)::BIGINT AS s FROM {reader(kind, folder, ', columns = {id: BIGINT, v: BIGINT, code2: BIGINT}')} WHERE year <> 2023"
        bad.write_text(text + "no,number,at all\n" * 3)
        assert session.run(sql)[0].to_pylist() == [{"n": 1600, "s": sum(range(200)) * 8 + 4 * 200 * (2022 + 2024) * 1000}]
        with pytest.raises(brantlib.BrantError):
            session.run(sql.replace("year <> 2023", "year <> 2022"))
    finally:
        bad.write_text(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", ["", ", hive_partitioning = true", ", hive_types = {'year': VARCHAR}", ", hive_types = {'year': SMALLINT, 'code': VARCHAR}",
                                     ", hive_types_autocast = false", ", filename = true"])
def test_types_and_options(session, folder, kind, options):
    source = reader(kind, folder, options)
    check(session, f"SELECT typeof(year), typeof(code), count(*) FROM {source} WHERE year::INTEGER = 2023 AND code < 'b' GROUP BY ALL")
    check(session, f"SELECT count(*) FROM {source} WHERE year::VARCHAR LIKE '%4'")


@pytest.mark.parametrize("kind", KINDS)
def test_folders_that_are_no_columns(session, tmp_path, kind):
    """As deep everywhere, or asked for: else a column of that name is the files' own."""
    def write(path, first, column="k"):
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "csv":
            path.write_text(f"id,{column}\n" + "".join(f"{first + i},{i % 4}\n" for i in range(300)))
        else:
            path.write_text("".join(json.dumps({"id": first + i, column: i % 4}) + "\n" for i in range(300)))
    for name, names in (("deep", ("k=1/a", "k=2/b/a")), ("named", ("k=1/v=1", "k=2/v=2")), ("off", ("k=1/a", "k=2/a")), ("other", ("k=1/a", "j=2/a"))):
        for i, n in enumerate(names):
            write(tmp_path / name / f"{n}.{kind}", i * 1000)
        function = "read_csv" if kind == "csv" else "read_json"
        options = ", hive_partitioning = false" if name == "off" else ""
        source = f"{function}('{tmp_path}/{name}/**/*.{kind}'{options})"
        for condition in ("k = 3", "k = 1", "k IN (0, 2)", "k > 7"):
            check(session, f"SELECT id, k FROM {source} WHERE {condition}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_name_hides_a_column(session, tmp_path, kind):
    for k in (1, 2):
        (tmp_path / f"k={k}").mkdir()
        if kind == "csv":
            (tmp_path / f"k={k}" / "a.csv").write_text("id,k\n" + "".join(f"{i},{i % 4}\n" for i in range(500)))
        else:
            (tmp_path / f"k={k}" / "a.ndjson").write_text("".join(json.dumps({"id": i, "k": i % 4}) + "\n" for i in range(500)))
    source = reader(kind, tmp_path, names="*")
    for condition in ("true", "k = 2", "k = 3", "k < 5"):
        check(session, f"SELECT k, count(*) FROM {source} WHERE {condition} GROUP BY k")


def test_joins_and_parts(session, folder):
    a, b = reader("csv", folder), reader("ndjson", folder)
    for sql in (f"SELECT a.id, b.v FROM {a} a JOIN {b} b ON a.id = b.id AND a.code = b.code WHERE a.year = 2023 AND b.year = 2023",
                f"SELECT a.id FROM {a} a LEFT JOIN (SELECT * FROM {b} WHERE year = 1999) b ON a.id = b.id WHERE a.year = 2024",
                f"SELECT id FROM {a} WHERE year = 2022 UNION ALL SELECT id FROM {b} WHERE year = 1999",
                f"SELECT id FROM {a} WHERE year = 2022 AND id NOT IN (SELECT id FROM {b} WHERE year = 2022 AND code = 'none')"):
        check(session, sql)


def test_one_part_and_none(folder):
    """Little enough for one task: it has the files that are left; none of them: no task."""
    with brantlib.Session(workers=3, threads=1, distribute="always") as s:
        for kind in KINDS:
            source = reader(kind, folder)
            for condition, n in (("true", 1), ("year = 2023", 1), ("year = 1999", 0)):
                check(s, f"SELECT id, year, code FROM {source} WHERE {condition}")
                assert splits(s, f"SELECT id, year, code FROM {source} WHERE {condition}") == n
            check(s, f"SELECT count(*), sum(id) FROM {source} WHERE year = 1999")


def write_rows(path, kind, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "csv":
        lines = [list(records[0]), *(list(r.values()) for r in records)]
        path.write_text("".join(",".join('"' + str(v).replace('"', '""') + '"' if isinstance(v, str) else str(v) for v in line) + "\n" for line in lines))
    else:
        path.write_text("".join(json.dumps(r) + "\n" for r in records))


def small(kind, folder, options=""):
    return f"read_{'csv' if kind == 'csv' else 'json'}('{folder}/**/a.{kind}'{options})"


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture(scope="module")
def staged():
    with brantlib.Session(workers=2, threads=1, distribute="always", mode="staged", settings={"split_bytes": 1500}) as s:
        yield s


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", ["user", "session_user", "current_date", "f", "c0", "t", "folders", "__file", "Years", "ye\"ar", "o'clock"])
def test_a_column_of_the_files_is_no_folder(staged, tmp_path, kind, column):
    """Whatever its name means elsewhere in SQL, or among this machinery's own names: nothing is known of it before it is read."""
    name = quoted(column)
    for text, seven in ((False, "7"), (True, "'v7'")):
        source = small(kind, tmp_path / str(text))
        for y in (2023, 2024):
            write_rows(tmp_path / str(text) / f"year={y}" / f"a.{kind}", kind, [{column: f"v{i % 9}" if text else i % 9, "x": i} for i in range(y % 100)])
        check(staged, f"SELECT * FROM {source} WHERE year = 2024 OR {name} = {seven}")
        check(staged, f"SELECT * FROM {source} WHERE {name} = {seven}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["user", "current_date", "f", "c0", "t", "folders", "__file", "Year", "ye\"ar", "o'clock", "a b", "größe"])
def test_a_folder_of_any_name(staged, tmp_path, kind, name):
    for v in (7, 8, 9):
        write_rows(tmp_path / f"{name}={v}" / f"a.{kind}", kind, [{"id": v * 100 + i, "x": i % 4} for i in range(60)])
    source = small(kind, str(tmp_path).replace("'", "''"))
    for condition in (f"{quoted(name)} = 7", f"{quoted(name)} > 8 OR x = 1"):
        check(staged, f"SELECT * FROM {source} WHERE {condition}")
    assert splits(staged, f"SELECT * FROM {source} WHERE {quoted(name)} < 7") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_and_a_column_that_differ_in_case(staged, tmp_path, kind):
    for v in (1, 2):
        write_rows(tmp_path / f"Key={v}" / f"a.{kind}", kind, [{"id": v * 100 + i, "kEY": i % 4} for i in range(50)])
    for condition in ("key = 1", "key = 3", "KEY > 1 OR id % 7 = 1"):
        check(staged, f"SELECT id, key FROM {small(kind, tmp_path)} WHERE {condition}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", ["0", "'false'", "'no'", "(false)", "0::BOOLEAN", "NOT true", "FALSE", "true, hive_partitioning = false",
                                   "1", "'yes'", "(true)", "1::BOOLEAN", "TRUE", "false, hive_partitioning = true"])
def test_hive_partitioning_however_it_is_written(staged, tmp_path, kind, value):
    """Off, `year` is the files' own; on, it is the folder's."""
    for y in (2023, 2024):
        write_rows(tmp_path / f"year={y}" / f"a.{kind}", kind, [{"year": 1999 + i % 30, "x": i} for i in range(80)])
    source = small(kind, tmp_path, f", hive_partitioning = {value}")
    for condition in ("year = 1999", "year = 2024 OR x = 7"):
        check(staged, f"SELECT year, x FROM {source} WHERE {condition}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", ["true", "'year_of'", "'true'", "0", "1", "false", "(true)"])
def test_folders_beside_a_column_with_the_file_s_name(staged, tmp_path, kind, value):
    for y in (2023, 2024):
        write_rows(tmp_path / f"year={y}" / f"a.{kind}", kind, [{"id": i, "x": i % 4} for i in range(200)])
    check(staged, f"SELECT * FROM {small(kind, tmp_path, f', filename = {value}')} WHERE year = 2024 OR x = 1")
