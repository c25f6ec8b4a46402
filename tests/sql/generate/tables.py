# SPDX-License-Identifier: Apache-2.0
"""Tables for generated queries: multi-part Parquet of adversarial values, every table with the same columns.

`make(seed)` writes build/data/generated/<version>-<seed>/<table>/*.parquet once and returns the folder; `views(folder)` are the
statements that name them. Values come from DuckDB's hash of (row, column, seed): the same files each time.
"""
import hashlib
import pathlib
import shutil

import tpch

# rows and parts; "same": every row is equal, "null": every value but the id is NULL, "dup": rows come in equal groups of four
TABLES = {"t0": (1500, 4, ""), "t1": (220, 3, ""), "t2": (35, 2, ""), "t3": (1, 1, ""), "t4": (0, 1, ""), "t5": (40, 2, "same"),
          "t6": (25, 1, "null"), "t7": (300, 2, "dup")}
NINES = "9" * 38
# name, type, SQL of a value from h (a hash of its own for each row and column); NULLs are put in afterwards
COLUMNS = [
    ("k", "INTEGER", "(h % 23)::INT - 3"), ("kb", "BIGINT", "(h % 23)::BIGINT - 3"), ("kt", "TINYINT", "(h % 23)::INT - 3"),
    ("ku", "UBIGINT", "h % 20"), ("kd", "DECIMAL(9,2)", "((h % 46)::INT - 6) * 0.5"), ("kw", "DECIMAL(30,5)", "(h % 23)::INT - 3"),
    ("kf", "DOUBLE", "((h % 46)::INT - 6) * 0.5"), ("kr", "FLOAT", "(h % 23)::INT - 3"), ("kh", "HUGEINT", "(h % 23)::INT - 3"),
    ("ks", "VARCHAR", "((h % 23)::INT - 3)::VARCHAR"), ("g", "SMALLINT", "h % 4"),
    ("z", "INTEGER", "CASE WHEN h % 10 < 8 THEN 7 ELSE h % 1000 END"),
    ("big", "BIGINT", "([9223372036854775807, -9223372036854775808, 0, -1, 1, 9007199254740993, 4294967296, 2147483648])[1 + h % 8]"),
    ("huge", "HUGEINT", f"([('1{'0' * 37}')::HUGEINT, ('-9{'0' * 36}')::HUGEINT, 18446744073709551616, 9223372036854775808, -1, 0, 5])[1 + h % 7]"),
    ("d38", "DECIMAL(38,0)", f"(['{NINES}', '-{NINES}', '0', '1', '-1', '1{'0' * 30}'])[1 + h % 6]"),
    ("d18", "DECIMAL(18,4)", "(['99999999999999.9999', '-99999999999999.9999', '0.0001', '0', '12.3400', '-7.5'])[1 + h % 6]"),
    ("f", "DOUBLE", "(['nan', 'inf', '-inf', '-0.0', '0.0', '1.5', '-2.25', '1024', '0.125', '3', '3', '-8'])[1 + h % 12]"),
    ("r", "FLOAT", "(['nan', 'inf', '-0.0', '0.0', '1.5', '-2.25', '1024', '0.125'])[1 + h % 8]"),
    ("x", "DOUBLE", "((h % 4001)::INT - 2000) / 8"), ("p", "DECIMAL(7,2)", "((h % 20001)::INT - 10000) / 100"),
    ("s", "VARCHAR", "(['', 'a', 'A', 'é', 'e' || chr(769), 'straße', '日本', '🙂', 'a b', 'it''s', '%', '_', 'NULL', 'longer than twelve', "
                     "'longer than twelve bytes', ' ', 'z', '0', '-1', 'a' || chr(0) || 'b'])[1 + h % 20]"),
    ("n", "VARCHAR", "'n' || (h % 400)"), ("bl", "BLOB", "([''::BLOB, '\\x00'::BLOB, 'a\\x00b'::BLOB, '\\xFF'::BLOB, 'a'::BLOB])[1 + h % 5]"),
    ("u", "UUID", "md5((h % 50)::VARCHAR)::UUID"), ("e", "ENUM('sad', 'ok', 'happy', '')", "(['sad', 'ok', 'happy', ''])[1 + h % 4]"),
    ("dt", "DATE", "DATE '2023-12-20' + (h % 90)::INT"),
    ("dx", "DATE", "(['infinity', '-infinity', '5881580-07-10', '1970-01-01', '0044-03-15 (BC)', '2024-02-29'])[1 + h % 6]"),
    ("ts", "TIMESTAMP", "TIMESTAMP '2023-12-31 22:00:00' + INTERVAL (h % 3000) MINUTE"),
    ("tx", "TIMESTAMP", "(['infinity', '-infinity', '294247-01-10 04:00:54.775', '1969-12-31 23:59:59.999999', '2024-01-02'])[1 + h % 5]"),
    ("tz", "TIMESTAMPTZ", "TIMESTAMPTZ '2024-03-30 22:00:00+00' + INTERVAL (h % 300) MINUTE"),
    ("tm", "TIME", "(['00:00:00', '24:00:00', '23:59:59.999999', '12:00:00'])[1 + h % 4]"),
    ("iv", "INTERVAL", "(['1 month', '30 days', '720 hours', '0 days', '60 days', '1 day 1 millisecond'])[1 + h % 6]"),
    ("l", "INTEGER[]", "CASE h % 5 WHEN 0 THEN [] WHEN 1 THEN [NULL] WHEN 2 THEN [(h % 7)::INT, NULL, 3] ELSE [(h % 9)::INT, (h % 3)::INT] END"),
    ("ls", "VARCHAR[]", "CASE h % 4 WHEN 0 THEN [] WHEN 1 THEN ['', NULL] ELSE ['v' || (h % 6), 'é'] END"),
    ("st", "STRUCT(a INTEGER, b VARCHAR)", "{'a': CASE WHEN h % 5 > 0 THEN (h % 6)::INT END, 'b': CASE WHEN h % 3 > 0 THEN 'b' || (h % 4) END}"),
    ("m", "MAP(VARCHAR, INTEGER)", "CASE WHEN h % 4 = 0 THEN MAP {} ELSE MAP {'k' || (h % 3): (h % 10)::INT, 'z': NULL} END"),
    ("ok", "BOOLEAN", "h % 2 = 0"),
    ("kg", "UHUGEINT", "h % 20"),
    ("tn", "TIMESTAMP_NS", "TIMESTAMP_NS '2023-12-31 22:00:00.000000001' + INTERVAL (h % 3000) MINUTE"),
    ("tt", "TIMETZ", "(['12:00:00+02', '10:00:00+00', '00:00:00-15:59', '24:00:00+15', '12:00:00.000001+02'])[1 + h % 5]"),
    ("ar", "INTEGER[2]", "[(h % 3)::INT, CASE WHEN h % 4 > 0 THEN (h % 2)::INT END]"),
    ("js", "JSON", "(['{\"a\": 1}', '{\"a\":1}', '[1, null]', '\"x\"', 'null', '12'])[1 + h % 6]"),
    ("bt", "BIT", "(['0', '1', '01', '0101', '10101010101'])[1 + h % 5]"),
    ("un", "UNION(n INTEGER, s VARCHAR)", "h % 7"),
]
# what Parquet has no name for: the views cast it back
STORED = {"HUGEINT": "DECIMAL(38,0)", "ENUM('sad', 'ok', 'happy', '')": "VARCHAR", "UHUGEINT": "DECIMAL(38,0)", "TIMETZ": "VARCHAR", "INTEGER[2]": "INTEGER[]",
          "BIT": "VARCHAR", "UNION(n INTEGER, s VARCHAR)": "INTEGER"}
SKEWED_NULLS = {"k": 6, "s": 4, "x": 9, "iv": 3, "l": 5, "ok": 7, "f": 10, "p": 8, "ks": 5}


def _value(name, kind, sql, seed, profile):
    row = {"same": "1", "dup": "i // 4"}.get(profile, "i")
    if profile == "null":
        return f"NULL::{STORED.get(kind, kind)} AS {name}"
    nulls = SKEWED_NULLS.get(name, 25)
    value = sql.replace("h %", f"(hash({row}, '{name}', {seed}) >> 2)::BIGINT %")
    return f"CASE WHEN hash({row}, '{name} null', {seed}) % {nulls} > 0 THEN ({value}) END::{STORED.get(kind, kind)} AS {name}"


def _rows(seed, profile, first, end):
    values = ", ".join(_value(*c, seed, profile) for c in COLUMNS)
    number = "1" if profile == "same" else "i"
    return f"SELECT {number}::BIGINT AS id, {values} FROM range({first}, {end}) r(i)"


def make(seed):
    import duckdb
    version = hashlib.sha256(pathlib.Path(__file__).read_bytes() + duckdb.__version__.encode()).hexdigest()[:12]
    out = tpch.DATA / "generated" / f"{version}-{seed}"
    if out.is_dir():
        return out
    tmp = out.with_name(out.name + ".partial")
    shutil.rmtree(tmp, ignore_errors=True)
    con = duckdb.connect(config={"threads": 1})
    con.execute("SET TimeZone = 'UTC'")
    for table, (rows, parts, profile) in TABLES.items():
        (tmp / table).mkdir(parents=True)
        # the second part of several is empty, the third has one row
        cuts = {1: [0, rows], 2: [0, rows * 2 // 3, rows], 3: [0, rows - 1, rows - 1, rows]}.get(parts, [0, rows // 2, rows // 2, rows // 2 + 1, rows])
        for part, (a, b) in enumerate(zip(cuts, cuts[1:])):
            con.execute(f"COPY ({_rows(seed, profile, a, b)}) TO '{tmp}/{table}/{part}.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    con.execute(f"ATTACH '{tmp}/store.duckdb' AS st")
    for table in TABLES:
        con.execute(f"CREATE TABLE st.{table} AS SELECT {stored()} FROM read_parquet('{tmp}/{table}/*.parquet')")
    con.execute("DETACH st")
    tmp.rename(out)
    return out


def stored():
    """All columns, in the types that Parquet has no name for too."""
    casts = [f"{name}::{kind} AS {name}" for name, kind, _ in COLUMNS if kind in STORED and not kind.startswith("UNION")]
    # a union whose first member is NULL and a NULL union are one on the wire (engine/unions.c): there are only the latter
    casts += [f"CASE WHEN {name} IS NOT NULL THEN {name}::{kind} END AS {name}" for name, kind, _ in COLUMNS if kind.startswith("UNION")]
    return f"* REPLACE ({', '.join(casts)})"


def views(folder):
    return [f"CREATE OR REPLACE VIEW {t} AS SELECT {stored()} FROM read_parquet('{folder}/{t}/*.parquet')" for t in TABLES]


def attached(folder):
    return f"ATTACH '{folder}/store.duckdb' AS st (READ_ONLY)"
