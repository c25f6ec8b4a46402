# SPDX-License-Identifier: Apache-2.0
"""TPC-DS for tests and benchmarks: files and query texts by DuckDB's tpcds extension, answers by DuckDB.

`python tests/lib/tpcds.py data 0.1` makes build/data/tpcds-0.1/<table>/*.parquet, large tables in several parts; `… answers 0.1` runs the
99 queries in one DuckDB process and keeps the results beside the data. Both do nothing when the files are there.
"""
import shutil
import sys

import tpch

PARTS = 4
LARGE = ("catalog_returns", "catalog_sales", "customer", "customer_address", "customer_demographics", "inventory", "store_returns",
         "store_sales", "web_returns", "web_sales")


def folder(scale):
    return tpch.DATA / f"tpcds-{scale}"


def _connect():
    import duckdb
    con = duckdb.connect(config={"threads": 2})
    con.execute(f"LOAD '{tpch.extension('tpcds')}'")
    return con


def make_data(scale):
    """Written beside and renamed, so that an interrupted run leaves nothing half."""
    out = folder(scale)
    if out.is_dir():
        return out
    tmp = out.with_name(out.name + ".partial")
    shutil.rmtree(tmp, ignore_errors=True)
    con = _connect()
    con.execute(f"CALL dsdgen(sf := {scale})")
    for (table,) in con.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall():
        (tmp / table).mkdir(parents=True)
        for part in range(PARTS if table in LARGE else 1):
            cut = f" WHERE rowid % {PARTS} = {part}" if table in LARGE else ""
            con.execute(f"COPY (SELECT * FROM {table}{cut}) TO '{tmp}/{table}/{part}.parquet' (ROW_GROUP_SIZE {20480 if float(scale) < 1 else 122880})")
    (tmp / "queries").mkdir()
    for nr, text in con.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall():
        (tmp / "queries" / f"q{nr:02}.sql").write_text(text.strip().rstrip(";") + "\n")
    tmp.rename(out)
    return out


def tables(scale):
    return sorted(p.name for p in folder(scale).iterdir() if p.is_dir() and not p.name.startswith(("queries", "answers")))


def views(scale):
    return [f"CREATE OR REPLACE VIEW {t} AS SELECT * FROM read_parquet('{folder(scale)}/{t}/*.parquet')" for t in tables(scale)]


def queries(scale):
    """{1: text, …, 99: text}"""
    return {int(f.stem[1:]): f.read_text() for f in sorted((folder(scale) / "queries").glob("q*.sql"))}


def make_answers(scale):
    import pyarrow as pa
    out = folder(scale) / "answers"
    if out.is_dir():
        return out
    tmp = out.with_name("answers.partial")
    shutil.rmtree(tmp, ignore_errors=True)
    tmp.mkdir()
    con = _connect()
    con.execute("SET arrow_lossless_conversion = true")
    for v in views(scale):
        con.execute(v)
    for nr, text in queries(scale).items():
        t = con.execute(text).to_arrow_table()
        with pa.OSFile(str(tmp / f"q{nr:02}.arrow"), "wb") as f, pa.ipc.new_file(f, t.schema) as w:
            w.write_table(t)
    tmp.rename(out)
    return out


def answer(scale, nr):
    import pyarrow as pa
    with pa.memory_map(str(folder(scale) / "answers" / f"q{nr:02}.arrow")) as f:
        return pa.ipc.open_file(f).read_all()


if __name__ == "__main__":
    what, scale = sys.argv[1], sys.argv[2]
    make_data(scale)
    if what == "answers":
        make_answers(scale)
