# SPDX-License-Identifier: Apache-2.0
"""TPC-H for the demo, tests and benchmarks: files by tpchgen-cli, query texts by DuckDB's tpch extension, answers by DuckDB.

`python tests/lib/tpch.py data 0.1` makes build/data/tpch-0.1/<table>/*.parquet; `… answers 0.1` runs the 22 queries in one DuckDB
process and keeps the results beside the data. Both do nothing when the files are there.
"""
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("BRANT_DATA_DIR", ROOT / "build" / "data"))
TABLES = "customer lineitem nation orders part partsupp region supplier".split()
PARTS = 8


def folder(scale):
    return DATA / f"tpch-{scale}"


def make_data(scale):
    """Multi-part Parquet under folder(scale); written beside and renamed, so that an interrupted run leaves nothing half."""
    out = folder(scale)
    if out.is_dir():
        return out
    DATA.mkdir(parents=True, exist_ok=True)
    tmp = out.with_name(out.name + ".partial")
    shutil.rmtree(tmp, ignore_errors=True)
    tool = pathlib.Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run([str(tool), "parquet", "-s", str(scale), f"--parts={PARTS}", f"--output-dir={tmp}"], check=True,
                   stdout=subprocess.DEVNULL)
    tmp.rename(out)
    return out


def views(scale):
    """CREATE VIEW statements over the files."""
    out = folder(scale)
    return [f"CREATE VIEW {t} AS SELECT * FROM read_parquet('{out}/{t}/*.parquet')" for t in TABLES]


def extension(name):
    """Path of a DuckDB extension that came with the PyPI package duckdb-extension-<name> (signed, for this DuckDB)."""
    import importlib.util
    root = pathlib.Path(importlib.util.find_spec(f"duckdb_extension_{name}").submodule_search_locations[0])
    return next(root.glob(f"extensions/*/{name}.duckdb_extension"))


def _connect():
    import duckdb
    con = duckdb.connect()
    con.execute(f"LOAD '{extension('tpch')}'")
    return con


def queries():
    """{1: text, …, 22: text}; kept in a file, so that processes without DuckDB can read them."""
    path = DATA / "tpch-queries"
    if not path.is_dir():
        tmp = path.with_name("tpch-queries.partial")
        shutil.rmtree(tmp, ignore_errors=True)
        tmp.mkdir(parents=True)
        for nr, text in _connect().execute("SELECT query_nr, query FROM tpch_queries()").fetchall():
            (tmp / f"q{nr:02}.sql").write_text(text.strip().rstrip(";") + "\n")
        tmp.rename(path)
    return {int(f.stem[1:]): f.read_text() for f in sorted(path.glob("q*.sql"))}


def make_answers(scale):
    """One DuckDB process, 2 threads: build/data/tpch-<scale>/answers/qNN.arrow."""
    import duckdb
    import pyarrow as pa
    out = folder(scale) / "answers"
    if out.is_dir():
        return out
    tmp = out.with_name("answers.partial")
    shutil.rmtree(tmp, ignore_errors=True)
    tmp.mkdir()
    con = duckdb.connect(config={"threads": 2})
    for v in views(scale):
        con.execute(v)
    for nr, text in queries().items():
        t = con.execute(text).arrow()
        t = t.read_all() if hasattr(t, "read_all") else t
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
        queries()
        make_answers(scale)
