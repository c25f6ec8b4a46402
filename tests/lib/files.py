# SPDX-License-Identifier: Apache-2.0
"""Adversarial files for the differential tests: Parquet by DuckDB and by pyarrow, CSV, JSON, a DuckDB database.

Everything is computed from row numbers or from a fixed seed: the same files each time. They are kept in build/data/adversarial and made
again when this file changes. `python tests/lib/files.py` makes them and prints the folder.

The contents, by folder, are in FOLDERS below; tests name them as `@/folder/…`.
"""
import decimal
import hashlib
import json
import pathlib
import random
import shutil

import tpch

FOLDERS = {
    "facts": "the general table: 5 files (one row, none, tiny groups, one big group), skewed keys, NULLs in every column",
    "dims": "the small side of joins: duplicates, NULL keys, keys that match nothing",
    "empty": "two files without rows", "hollow": "zero-row groups between full ones", "one": "20 files of one row",
    "allnull": "columns that hold nothing but NULL, also Arrow's null type", "floats": "NaN, -0.0, infinities as keys and values",
    "keys": "the same keys in ten types", "nested": "lists, structs, maps, NULL and empty at every level",
    "arrowed": "pyarrow's own: dictionaries, large strings, fixed lists, half floats, unsigned integers, ns and s timestamps",
    "times": "dates, times, timestamps of every unit, intervals, extremes", "decimals": "1 to 38 digits, extremes",
    "blobs": "bytes 0 to 255, UUIDs", "wide": "600 columns", "long": "strings of 5 MB", "names": "quotes, dots and Unicode in columns",
    "odd": "quotes, spaces and glob characters in file names", "hive": "partitioned folders", "byname": "schemas that differ",
    "order": "the same columns in another order", "uneven": "10 rows beside 100,000", "sets": "duplicates and NULLs for set operations",
    "series": "irregular series for ASOF joins and windows", "graph": "edges with a cycle", "text": "CSV and JSON",
    "store.duckdb": "a database: deleted rows, enums, bits, unions, arrays, views, 300,000 rows",
}


def folder():
    return tpch.DATA / "adversarial"


def _copy(con, query, path, options=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    name = str(path).replace("'", "''")
    con.execute(f"COPY ({query}) TO '{name}' (FORMAT parquet{', ' + options if options else ''})")


# a row from its number: skewed k (60 % zero, some NULL), g of 8 groups, s mostly NULL, ids unique
FACTS = """SELECT i::BIGINT AS id,
  CASE WHEN i % 10 < 6 THEN 0 WHEN i % 10 = 6 THEN NULL ELSE (i * 7919 % 50)::INT END AS k, (i * 31 % 8)::SMALLINT AS g,
  CASE WHEN i % 3 = 0 THEN 'n' || (i % 17) END AS s, 'name ' || (i * 13 % 1000) AS name,
  CASE i % 97 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN 'inf'::DOUBLE WHEN 2 THEN '-inf'::DOUBLE WHEN 3 THEN '-0.0'::DOUBLE WHEN 4 THEN NULL
    ELSE (i * 37 % 1000) / 8 END AS d,
  (i % 64) / 4.0::DOUBLE AS x, ((i * 991 % 100000) / 100)::DECIMAL(12,2) AS price,
  CASE WHEN i % 11 <> 0 THEN (i * 1234567.123)::DECIMAL(38,10) END AS big,
  TIMESTAMP '2024-01-01' + INTERVAL (i * 61) MINUTE AS ts, TIMESTAMPTZ '2024-03-30 00:00:00+00' + INTERVAL (i * 13) MINUTE AS tz,
  CASE WHEN i % 5 <> 0 THEN DATE '2024-01-01' + (i % 400)::INT END AS day, (i % 7 = 0) AS ok,
  CASE WHEN i % 4 <> 0 THEN [(i % 5)::INT, NULL, (i % 3)::INT] WHEN i % 8 = 0 THEN [] END AS l,
  CASE WHEN i % 6 <> 0 THEN {'a': (i % 9)::INT, 'b': 'b' || (i % 4)} END AS st
  FROM range({}, {}) r(i)"""


def _fact_rows(first, end):
    return FACTS.replace("{}, {}", f"{first}, {end}")


def _facts(con, out):
    import pyarrow.parquet as pq
    d = out / "facts"
    _copy(con, _fact_rows(0, 6000), d / "part-0.parquet", "ROW_GROUP_SIZE 2048")
    _copy(con, _fact_rows(6000, 6001), d / "part-1.parquet")
    _copy(con, _fact_rows(0, 0), d / "part-2.parquet")
    tiny = con.execute(_fact_rows(6001, 6301)).arrow()
    tiny = tiny.read_all() if hasattr(tiny, "read_all") else tiny
    pq.write_table(tiny, d / "part-3.parquet", row_group_size=10)
    _copy(con, _fact_rows(6301, 20000), d / "part-4.parquet", "COMPRESSION zstd")
    _copy(con, """SELECT CASE WHEN i % 9 = 8 THEN NULL ELSE (i * 3)::INT END AS k, 'dim ' || i AS label, (i % 4)::TINYINT AS kind,
                  CASE WHEN i % 4 <> 3 THEN i * 2.5 END::DOUBLE AS w FROM range(30) r(i)
                  UNION ALL SELECT 0, 'dim zero again', 9, -1 UNION ALL SELECT 3, 'dim three again', 9, NULL""", out / "dims" / "d.parquet")


def _empty(con, out):
    import pyarrow as pa
    import pyarrow.parquet as pq
    for i in range(2):
        _copy(con, "SELECT 1::INT AS a, 'x' AS b, 1.5::DOUBLE AS c, [1] AS l WHERE false", out / "empty" / f"e{i}.parquet")
    schema = pa.schema([("a", pa.int32()), ("b", pa.string())])
    (out / "hollow").mkdir()
    with pq.ParquetWriter(out / "hollow" / "h.parquet", schema) as w:
        for n in (0, 3, 0, 0, 5, 1, 0):
            w.write_table(pa.table({"a": list(range(n)), "b": [None if i % 2 else f"h{i}" for i in range(n)]}, schema=schema))
    pq.write_table(pa.table({"a": [], "b": []}, schema=schema), out / "hollow" / "none.parquet")
    for i in range(20):
        _copy(con, f"SELECT {i}::INT AS a, 'one {i}' AS b, {i % 3}::BIGINT AS k", out / "one" / f"o{i:02}.parquet")
    _copy(con, """SELECT i::INT AS id, NULL::INT AS a, NULL::VARCHAR AS b, NULL::DOUBLE AS c, NULL::INT[] AS l, NULL::STRUCT(x INT) AS s,
                  NULL::DECIMAL(20,3) AS e FROM range(50) r(i)""", out / "allnull" / "d.parquet")
    pq.write_table(pa.table({"id": pa.array(range(7)), "n": pa.nulls(7), "t": pa.nulls(7, pa.timestamp("us"))}),
                   out / "allnull" / "arrow.parquet")


def _keys(con, out):
    values = "('nan'), ('-nan'), ('0.0'), ('-0.0'), ('inf'), ('-inf'), (NULL), ('1'), ('1.5'), ('16777216'), ('16777217'), ('0.1')"
    for side, mod in (("l", 1), ("r", 2)):
        _copy(con, f"""SELECT i::INT AS id, v::DOUBLE AS d, v::FLOAT AS f FROM (VALUES {values}) t(v), range(4) r(i)
                       WHERE (i + length(coalesce(v, ''))) % {mod} = 0""", out / "floats" / f"{side}.parquet")
        _copy(con, f"""SELECT i::INT AS id, (i * {mod} % 120)::TINYINT AS i8, (i * {mod} % 200)::UTINYINT AS u8, (i * {mod})::INT AS i32,
                       CASE WHEN i % 7 <> 0 THEN (i * {mod})::BIGINT END AS i64, (i * {mod})::FLOAT AS f32, (i * {mod})::DOUBLE AS f64,
                       (i * {mod})::DECIMAL(9,2) AS d9, (i * {mod})::DECIMAL(30,4) AS d30, (i * {mod})::VARCHAR AS s,
                       DATE '2024-01-01' + (i * {mod})::INT AS day, TIMESTAMP '2024-01-01' + INTERVAL (i * {mod}) DAY AS ts,
                       TIMESTAMPTZ '2024-01-01 00:00:00+00' + INTERVAL (i * {mod}) DAY AS tz,
                       (TIMESTAMP '2024-01-01' + INTERVAL (i * {mod}) DAY)::TIMESTAMP_NS AS ns,
                       [i * {mod}] AS li, {{'a': i * {mod}, 'b': NULL}} AS st FROM range(150) r(i)""", out / "keys" / f"{side}.parquet")
    for side, mod in (("a", 5), ("b", 3)):
        _copy(con, f"""SELECT CASE WHEN i % {mod} = 0 THEN NULL ELSE (i % 11)::INT END AS x, CASE WHEN i % 4 = 0 THEN NULL ELSE 'v' || (i % {mod})
                       END AS y FROM range(60) r(i)""", out / "sets" / f"{side}.parquet")
    _copy(con, "SELECT 1::INT AS x, 'v1' AS y WHERE false", out / "sets" / "none.parquet")


def _nested(con, out):
    _copy(con, """SELECT i::INT AS id,
      CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN [] WHEN 2 THEN [NULL] ELSE [i, NULL, i * 2] END::BIGINT[] AS l,
      CASE i % 4 WHEN 0 THEN NULL WHEN 1 THEN [[], NULL, [i]] ELSE [[i, 1], [NULL]] END::INT[][] AS ll,
      CASE i % 3 WHEN 0 THEN NULL ELSE {'a': CASE WHEN i % 2 = 0 THEN i END::INT, 'b': {'c': 'c' || i, 'd': [i::DOUBLE, NULL]}} END AS s,
      CASE i % 6 WHEN 0 THEN NULL WHEN 1 THEN MAP {}::MAP(VARCHAR, INT) ELSE MAP {'k' || (i % 3): i::INT, 'z': NULL} END AS m,
      CASE i % 7 WHEN 0 THEN NULL WHEN 1 THEN [] ELSE [{'p': i::INT, 'q': ['x', NULL]}, NULL, {'p': NULL, 'q': NULL}] END AS ls,
      MAP {i::INT: [{'deep': MAP {'a': [i]}}]} AS deep, CASE WHEN i % 2 = 0 THEN ['é' || i, '', NULL] END AS ss
      FROM range(400) r(i)""", out / "nested" / "duck.parquet", "ROW_GROUP_SIZE 2048")
    import pyarrow as pa
    import pyarrow.parquet as pq
    rows = con.execute(f"SELECT * FROM '{out}/nested/duck.parquet' WHERE id < 60").arrow()
    rows = rows.read_all() if hasattr(rows, "read_all") else rows
    rows = rows.set_column(0, "id", pa.array(range(1000, 1060), pa.int32()))
    pq.write_table(rows, out / "nested" / "arrow.parquet", row_group_size=7)


def _arrowed(out):
    import pyarrow as pa
    import pyarrow.parquet as pq
    n = 90
    (out / "arrowed").mkdir()
    t = pa.table({
        "id": pa.array(range(n), pa.int64()),
        "dict": pa.DictionaryArray.from_arrays(pa.array([None if i % 9 == 0 else i % 3 for i in range(n)], pa.int8()),
                                               ["low", "mid", "high"]),
        "large": pa.array([None if i % 4 == 0 else f"große {i}" for i in range(n)], pa.large_string()),
        "view": pa.array([f"view of a string longer than twelve {i % 5}" for i in range(n)], pa.string()),
        "fixed": pa.array([None if i % 5 == 0 else [i, None, i + 1] for i in range(n)], pa.list_(pa.int16(), 3)),
        "bin16": pa.array([None if i % 6 == 0 else bytes([i]) * 16 for i in range(n)], pa.binary(16)),
        "u8": pa.array([i * 2 for i in range(n)], pa.uint8()), "u16": pa.array([65535 - i for i in range(n)], pa.uint16()),
        "u32": pa.array([4294967295 - i for i in range(n)], pa.uint32()),
        "u64": pa.array([18446744073709551615 - i for i in range(n)], pa.uint64()),
        "half": pa.array([i / 4 for i in range(n)], pa.float16()),
        "ms": pa.array([None if i % 8 == 0 else i * 1001 for i in range(n)], pa.timestamp("ms")),
        "us": pa.array([i * 1001 - 5 for i in range(n)], pa.timestamp("us", "Europe/Berlin")),
        "ns": pa.array([i * 1001001001 + 7 for i in range(n)], pa.timestamp("ns")),
        "t32": pa.array([i * 1000 for i in range(n)], pa.time32("ms")), "t64": pa.array([i * 1000001 for i in range(n)], pa.time64("us")),
        "day": pa.array([i * 30 - 900 for i in range(n)], pa.date32()),
        "dec": pa.array([decimal.Decimal(i) / 8 for i in range(n)], pa.decimal128(20, 3)),
        "m": pa.array([None if i % 7 == 0 else [(f"k{i % 3}", i), ("z", None)] for i in range(n)], pa.map_(pa.string(), pa.int32())),
        "yes": pa.array([None if i % 3 == 0 else i % 2 == 0 for i in range(n)])})
    pq.write_table(t, out / "arrowed" / "a.parquet", row_group_size=13, version="2.6", use_dictionary=True)
    pq.write_table(t.slice(0, 40), out / "arrowed" / "b.parquet", version="2.6", use_dictionary=False, data_page_version="2.0", compression="gzip")


def _scalars(con, out):
    _copy(con, """SELECT i::INT AS id, DATE '1970-01-01' + ((i - 25) * 20000)::INT AS day, TIME '00:00:00' + INTERVAL (i * 1733) SECOND AS t,
      (TIMESTAMP '1970-01-01' + INTERVAL ((i - 25) * 999) HOUR) AS us, (TIMESTAMP '1969-12-31 23:59:59.999' + INTERVAL (i) MILLISECOND)::TIMESTAMP_MS AS ms,
      (TIMESTAMP '1969-12-31 23:59:30' + INTERVAL (i) SECOND)::TIMESTAMP_S AS s, make_timestamp_ns((i - 25) * 1000000007) AS ns,
      TIMESTAMPTZ '2024-10-27 00:00:00+00' + INTERVAL (i * 10) MINUTE AS tz, ('10:00:00' || CASE i % 3 WHEN 0 THEN '+00' WHEN 1 THEN '-05:30'
      ELSE '+14' END)::TIMETZ AS ttz, to_months(i::INT % 5) + to_days(i::INT % 40) + to_microseconds(i * 1000000007) AS iv FROM range(50) r(i)
      UNION ALL SELECT 100 + n, day::DATE, t::TIME, us::TIMESTAMP, NULL, NULL, NULL, tz::TIMESTAMPTZ, NULL, NULL FROM (VALUES
        (0, 'infinity', '24:00:00', 'infinity', 'infinity'), (1, '-infinity', NULL, '-infinity', '-infinity'),
        (2, '0044-03-15 (BC)', NULL, '0001-01-01', '9999-12-31 23:59:59.999999+00')) v(n, day, t, us, tz)""",
          out / "times" / "t.parquet")
    nines = "9" * 38
    _copy(con, f"""SELECT i::INT AS id, (i % 10)::DECIMAL(1,0) AS d1, (i / 100)::DECIMAL(4,2) AS d4, (i * 12345.67)::DECIMAL(9,2) AS d9,
      (i * -98765432.1)::DECIMAL(18,4) AS d18, (i::DECIMAL(38,0) * 12345678901234567890123456)::DECIMAL(38,0) AS d38,
      (i / 7)::DECIMAL(38,37) AS f38, i::HUGEINT * 170141183460469231731687303715884105 AS huge FROM range(60) r(i)
      UNION ALL SELECT 100, 9, 99.99, 9999999.99, 99999999999999.9999, {nines}, '9.{"9" * 37}'::DECIMAL(38,37), 0
      UNION ALL SELECT 101, -9, -99.99, -9999999.99, -99999999999999.9999, -{nines}, '-9.{"9" * 37}'::DECIMAL(38,37), 0
      UNION ALL SELECT 102, NULL, NULL, NULL, NULL, NULL, NULL, NULL""", out / "decimals" / "d.parquet")
    _copy(con, r"""SELECT i::INT AS id, unhex(lpad(hex(i), 2, '0')) || '\x00'::BLOB || unhex(lpad(hex(255 - i), 2, '0')) AS b,
      CASE WHEN i % 5 = 0 THEN '\x00'::BLOB WHEN i % 5 = 1 THEN ''::BLOB WHEN i % 5 = 2 THEN NULL ELSE 'a\x00b'::BLOB END AS c,
      md5((i % 100)::VARCHAR)::UUID AS u, 'a' || chr(0) || (i % 3) AS z FROM range(256) r(i)""", out / "blobs" / "b.parquet")


def _shapes(con, out):
    for f in range(2):
        columns = ", ".join(f"(i * {c} + {f})::{'INT' if c % 3 else 'VARCHAR'} AS c{c}" for c in range(600))
        _copy(con, f"SELECT {columns} FROM range(40) r(i)", out / "wide" / f"w{f}.parquet")
    _copy(con, "SELECT i::INT AS id, CASE WHEN i < 6 THEN repeat(chr(97 + i::INT), 5000000) ELSE 'short ' || i END AS s FROM range(9) r(i)",
          out / "long" / "l.parquet")
    names = ['a b', 'quo"te', "apo'strophe", "ünï", "日本", "select", "dot.ted", "c0", "semi;colon", "--dashes", "UPPER", "new\nline", "🙂"]
    quoted = ", ".join('(i * %d)::INT AS "%s"' % (n + 1, name.replace('"', '""')) for n, name in enumerate(names))
    _copy(con, f"SELECT {quoted}, {{'in ner': i, 'qu\"ote': {{'x y': i}}}} AS \"st ruct\" FROM range(30) r(i)", out / "names" / "n.parquet")
    for n, name in enumerate(["plain", "with space", "apo'strophe", 'quo"te', "gl*b", "quest?on", "[ab]", "ünï-日本", "per%20cent", "semi;colon",
                              "back\\slash", "comma,name", "{a,b}"]):
        _copy(con, f"SELECT {n}::INT AS n, i::INT AS i FROM range(20) r(i)", out / "odd" / f"{name}.parquet")
    _copy(con, "SELECT 99::INT AS n, i::INT AS i FROM range(3) r(i)", out / "odd" / "a.parquet")  # what [ab] would match
    con.execute(f"""COPY (SELECT i::INT AS id, (2020 + i % 3)::INT AS year, CASE i % 4 WHEN 0 THEN 'a b' WHEN 1 THEN 'x/y' WHEN 2 THEN NULL
                    ELSE 'ü=1' END AS kind, lpad((i % 2)::VARCHAR, 2, '0') AS code, i * 0.5::DOUBLE AS v FROM range(300) r(i))
                    TO '{out}/hive' (FORMAT parquet, PARTITION_BY (year, kind, code))""")
    d = out / "byname"
    _copy(con, "SELECT i::INT AS a, 'b' || i AS b FROM range(10) r(i)", d / "1.parquet")
    _copy(con, "SELECT 'second ' || i AS b, i * 1.5::DOUBLE AS c FROM range(10) r(i)", d / "2.parquet")
    _copy(con, "SELECT i * 5000000000 AS a, i::DOUBLE AS c, {'x': i, 'y': 'y'} AS d FROM range(10) r(i)", d / "3.parquet")
    _copy(con, "SELECT i::SMALLINT AS a, 1 AS e FROM range(0) r(i)", d / "4.parquet")
    _copy(con, "SELECT i::INT AS a, 'b' || i AS b, i * 2.0::DOUBLE AS c FROM range(20) r(i)", out / "order" / "1.parquet")
    _copy(con, "SELECT i * 3.0::DOUBLE AS c, 'B' || i AS b, (i + 100)::INT AS a FROM range(20) r(i)", out / "order" / "2.parquet")
    _copy(con, "SELECT i::INT AS a, 'first ' || i AS b FROM range(10) r(i)", out / "uneven" / "0-small.parquet")
    _copy(con, "SELECT (i % 1000)::INT AS a, 'row ' || (i % 777) AS b FROM range(100000) r(i)", out / "uneven" / "1-large.parquet",
          "ROW_GROUP_SIZE 20480")


def _series(con, out):
    rnd, rows, at = random.Random(20240501), [], 0
    for i in range(800):
        at += rnd.choice((0, 1, 1, 2, 7, 30))
        rows.append((at, rnd.choice("ABCD"), None if rnd.random() < 0.1 else rnd.randint(-50, 50)))
    con.execute("CREATE OR REPLACE TABLE series (t INT, sym VARCHAR, v INT)")
    con.executemany("INSERT INTO series VALUES (?, ?, ?)", rows)
    for part in range(3):
        _copy(con, f"SELECT row_number() OVER ()::INT AS n, TIMESTAMP '2024-01-01' + to_seconds(t) AS ts, t, sym, v FROM series QUALIFY n % 3 = {part}",
              out / "series" / f"s{part}.parquet")
    _copy(con, """SELECT TIMESTAMP '2024-01-01' + INTERVAL (i * 131) SECOND AS ts, (i * 131)::INT AS t, chr(65 + (i % 5)::INT) AS sym, i::INT AS q
                  FROM range(40) r(i) UNION ALL SELECT NULL, NULL, 'A', -1 UNION ALL SELECT TIMESTAMP '2023-01-01', -5, NULL, -2""",
          out / "series" / "probe" / "p.parquet")
    _copy(con, """SELECT i::INT AS a, (i * 2 + 1)::INT AS b FROM range(60) r(i) UNION ALL SELECT i, i + 1 FROM range(40) r(i)
                  UNION ALL SELECT 40, 3 UNION ALL SELECT 5, 5""", out / "graph" / "e.parquet")


def _text(con, out):
    d = out / "text"
    d.mkdir()
    con.execute(f"""COPY (SELECT i AS id, 'v,' || i AS a, CASE WHEN i % 3 = 0 THEN NULL ELSE i / 4 END AS b, DATE '2024-01-01' + i::INT AS c
                    FROM range(500) r(i)) TO '{d}/a.csv' (HEADER)""")
    con.execute(f"COPY (SELECT i AS id, {{'x': i, 'y': ['p', 'q']}} AS o, i % 4 AS k FROM range(300) r(i)) TO '{d}/a.json' (FORMAT json)")
    (d / "array.json").write_text(json.dumps([{"id": i, "s": f"é{i}"} for i in range(20)]))


STORE = r"""
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'it''s', 'a)b');
CREATE TABLE items AS SELECT i::BIGINT AS id, (i % 100)::INT AS k, 'item ' || (i % 1000) AS name, (i % 50 / 4)::DOUBLE AS x FROM range(300000) r(i);
CREATE TABLE holes AS SELECT i::INT AS id, (i % 7)::INT AS k, 'row ' || i AS s FROM range(260000) r(i);
DELETE FROM holes WHERE id % 3 = 0 OR id BETWEEN 130000 AND 250000;
UPDATE holes SET s = 'changed' WHERE id % 1000 = 1;
CREATE TABLE gone AS SELECT i::INT AS id FROM range(5000) r(i);
DELETE FROM gone;
CREATE TABLE none (a INT, b VARCHAR, m mood, l INT[]);
CREATE TABLE types AS SELECT i::INT AS id, (['sad', 'ok', 'happy', 'it''s', 'a)b', NULL])[1 + i % 6]::mood AS m, ('10' || (i % 2) || '1')::BIT AS bits,
  i::HUGEINT * 170141183460469231731687303715884105 AS huge, i::UHUGEINT * 3402823669209384634633746074317682114 AS uhuge,
  [i, NULL, i + 1]::INT[3] AS arr, CASE i % 3 WHEN 0 THEN union_value(num := i::INT) WHEN 1 THEN union_value(str := 's' || i)::UNION(num INT, str VARCHAR)
  END AS u, ('10:0' || (i % 10) || ':00+02')::TIMETZ AS ttz, make_timestamp_ns(i * 1000000007) AS ns, (i * 7)::UBIGINT AS ub,
  to_days(i::INT) + to_seconds(i) AS iv, md5(i::VARCHAR)::UUID AS uu, i::BIGNUM * 1000000000000000000000 AS big, ('{"a":' || i || '}')::JSON AS js,
  [(['sad', 'ok', 'happy'])[1 + i % 3]::mood] AS ml, {'m': (['sad', 'ok'])[1 + i % 2]::mood, 'i': i} AS ms, MAP {'k': 'ok'::mood} AS mm,
  TIME '00:00:00' + INTERVAL (i) SECOND AS t, encode('b' || chr(0) || i) AS bl, ((i % 5)::VARCHAR || '.50')::DECIMAL(38,2) AS dec FROM range(90) r(i);
CREATE TABLE "odd name" ("sel ect" INT, "a""b" VARCHAR, "rowid" INT);
INSERT INTO "odd name" SELECT i, 'x' || i, i * 2 FROM range(40) r(i);
CREATE TABLE words (w VARCHAR COLLATE NOCASE, n INT);
INSERT INTO words VALUES ('ant', 1), ('Ant', 2), ('bee', 3), ('BEE', 4), ('cow', 5), (NULL, 6), ('äpfel', 7), ('Zebra', 8), ('apple', 9);
CREATE TABLE derived (a INT, twice INT GENERATED ALWAYS AS (a * 2) VIRTUAL);
INSERT INTO derived SELECT i FROM range(80) r(i);
CREATE VIEW good AS SELECT id, m FROM types WHERE m IN ('ok', 'happy');
CREATE SCHEMA other;
CREATE TABLE other.items AS SELECT i::INT AS id FROM range(10) r(i);
CREATE MACRO twice(v) AS v * 2;
"""


def _store(out):
    import duckdb
    with duckdb.connect(str(out / "store.duckdb")) as con:
        con.execute(STORE)


def make():
    """The folder with all files; made again when this file is newer than they are."""
    import duckdb
    out = folder()
    version = hashlib.sha256(pathlib.Path(__file__).read_bytes() + duckdb.__version__.encode()).hexdigest()
    mark = out / "version"
    if mark.is_file() and mark.read_text() == version:
        return out
    tmp = out.with_name("adversarial.partial")
    shutil.rmtree(tmp, ignore_errors=True)
    tmp.mkdir(parents=True)
    con = duckdb.connect(config={"threads": 1})
    con.execute("SET TimeZone = 'UTC'")
    for step in (_facts, _empty, _keys, _nested, _scalars, _shapes, _series, _text):
        step(con, tmp)
    _arrowed(tmp)
    _store(tmp)
    (tmp / "version").write_text(version)
    shutil.rmtree(out, ignore_errors=True)
    tmp.rename(out)
    return out


if __name__ == "__main__":
    print(make())
