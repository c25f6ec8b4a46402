# SPDX-License-Identifier: Apache-2.0
"""TPC-H and TPC-DS: brant (2 workers of 1 thread, all distributed) beside one DuckDB process of 2 threads, the same files, query by query in
turn. Called by run.py.

Each query runs once before it is measured, on both sides, and its rows are compared. CPU seconds are those of DuckDB's process and of brant's
executors; planning is the time that submit() takes here, in the coordinator: parse, bind, optimise, cut into stages and splits.
"""
import resource
import statistics
import time

import brantlib
import queries as lib
import tpcds
import tpch


def cpu():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime


def duckdb_run(duck, text):
    """(seconds, CPU seconds)"""
    c0, t0 = cpu(), time.perf_counter()
    duck.con.execute(text).fetchall()
    return time.perf_counter() - t0, cpu() - c0


def brant_run(session, text):
    """(seconds, CPU seconds of executors, CPU seconds of this process, seconds of planning, stats)"""
    c0, t0 = cpu(), time.perf_counter()
    q = session.submit(text)
    try:
        planned = time.perf_counter()
        q.table()
        end, st = time.perf_counter(), q.stats()
    finally:
        q.free()
    return end - t0, st.cpu_seconds, cpu() - c0, planned - t0, st


class TpcH:
    name, views, queries = "TPC-H", staticmethod(tpch.views), staticmethod(lambda scale: tpch.queries())

    @staticmethod
    def make(scale):
        tpch.make_data(scale)


class TpcDs:
    name, views, queries = "TPC-DS", staticmethod(tpcds.views), staticmethod(tpcds.queries)

    @staticmethod
    def make(scale):
        tpcds.make_data(scale)


HEAD = "| query | DuckDB s | brant s | ratio | DuckDB CPU s | brant CPU s | CPU ratio | planning ms | coordinator CPU ms | stages | tasks | shuffled MB |"


def line(name, m, st=None):
    """m: medians of DuckDB's two numbers and brant's four."""
    rest = f"{st.stages} | {st.tasks} | {st.bytes_shuffled / 1e6:.1f}" if st else " | | "
    return (f"| {name} | {m[0]:.3f} | {m[2]:.3f} | {m[2] / m[0]:.2f} | {m[1]:.3f} | {m[3]:.3f} | {m[3] / m[1]:.2f} "
            f"| {m[5] * 1e3:.1f} | {m[4] * 1e3:.1f} | {rest} |")


def run(a, suite):
    suite.make(a.scale)
    texts = suite.queries(a.scale)
    only = [int(x) for x in a.queries.split(",") if x] or sorted(texts)
    duck = lib.Duck()
    for v in suite.views(a.scale):
        duck.execute(v)
    print(f"\n{suite.name} scale {a.scale}: one DuckDB process of 2 threads; brant 2 workers x 1 thread, {a.mode}; medians of {a.runs}")
    print(HEAD + "\n|" + "---|" * 12)
    total, stages, tasks, peak, own, wrong, above = [0.0] * 6, 0, 0, 0, 0, [], 0
    settings = dict(x.split("=", 1) for x in a.set)
    with brantlib.Session(workers=2, threads=1, memory=a.memory, distribute="always", mode=a.mode, settings=settings) as s:
        for v in suite.views(a.scale):
            s.run(v)
        for nr in only:
            diff = lib.difference_to_duckdb(s, duck, texts[nr])
            if diff is not None:
                wrong.append(nr)
                print(f"q{nr:02}: {diff}", flush=True)
            runs = ([], [])
            for i in range(a.runs):
                pair = (lambda: runs[0].append(duckdb_run(duck, texts[nr])), lambda: runs[1].append(brant_run(s, texts[nr])))
                for one in (pair if i % 2 == 0 else pair[::-1]):
                    one()
            m = [statistics.median(x[k] for x in runs[0]) for k in range(2)] + [statistics.median(x[k] for x in runs[1]) for k in range(4)]
            st = runs[1][-1][4]
            total = [x + y for x, y in zip(total, m)]
            stages, tasks, above = stages + st.stages, tasks + st.tasks, above + (m[3] > 2 * m[1])
            peak, own = max(peak, st.peak_memory_bytes), max(own, st.coordinator_memory_bytes)
            print(line(f"q{nr:02}", m, st), flush=True)
    print(line("total", total))
    print(f"{stages} stages, {tasks} tasks; {above} of {len(only)} queries take more than twice the CPU seconds; rows unlike DuckDB's: {wrong or 'none'}")
    print(f"largest worker {peak / 2**20:.0f} MiB (PSS of worker and executor); this process with Python, DuckDB and the coordinator "
          f"{own / 2**20:.0f} MiB")
    return 1 if wrong else 0
