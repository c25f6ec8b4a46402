# SPDX-License-Identifier: Apache-2.0
"""make demo: all 22 TPC-H queries over multi-part Parquet, distributed over local workers, each compared with DuckDB.

A line a query: rows, seconds, stages, tasks, bytes shuffled (none is an error), peak memory of one worker, and whether the rows are
the same. Exits with 1 when a query fails, differs, or shuffled nothing.
"""
import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "lib"))
import brantlib  # noqa: E402
import compare  # noqa: E402
import tpch  # noqa: E402


def size(n):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024


def run_query(session, scale, nr, text):
    """(line, good)"""
    try:
        table, st = session.run(text)
    except brantlib.BrantError as e:
        return f"q{nr:02}  FAILED  {e}", False
    want = compare.rows_of(tpch.answer(scale, nr))
    diff = compare.difference(compare.rows_of(table), want, ordered="order by" in text.lower())
    verdict = "same as DuckDB" if diff is None else f"DIFFERS: {diff}"
    if st.bytes_shuffled == 0 or not st.distributed:
        verdict, diff = "NOTHING SHUFFLED", "x"
    line = (f"q{nr:02} {table.num_rows:>7} rows {st.seconds:7.2f} s {st.stages:3} stages {st.tasks:4} tasks "
            f"{size(st.bytes_shuffled):>10} shuffled {size(st.peak_memory_bytes):>10} peak  {verdict}")
    return line, diff is None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--scale", default="1")
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--queries", default="", help="comma-separated numbers; all when empty")
    ap.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    a = ap.parse_args()
    tpch.make_data(a.scale)
    queries = tpch.queries()
    tpch.make_answers(a.scale)
    only = [int(x) for x in a.queries.split(",") if x] or sorted(queries)
    t0, bad = time.time(), 0
    with brantlib.Session(workers=a.workers, threads=a.threads, distribute="always",
                          settings=dict(x.split("=", 1) for x in a.set)) as s:
        for v in tpch.views(a.scale):
            s.run(v)
        for nr in only:
            line, good = run_query(s, a.scale, nr, queries[nr])
            bad += not good
            print(line, flush=True)
        own = s.submit("SELECT 1")
        memory = own.stats().coordinator_memory_bytes
        own.free()
    print(f"{len(only)} queries on {a.workers} workers in {time.time() - t0:.1f} s; coordinator {size(memory)}; "
          + ("all the same as DuckDB" if not bad else f"{bad} NOT right"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
