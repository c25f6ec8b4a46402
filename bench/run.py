# SPDX-License-Identifier: Apache-2.0
"""make bench: ratios side by side in one run, medians. docs/benchmarks.md says how to read them.

    python bench/run.py                          everything, scale 1
    python bench/run.py tpch --scale 10 --runs 3 one part
    python bench/run.py tpcds --runs 3           the 99 queries of TPC-DS
    python bench/run.py faults --scale 10        one of four workers is killed in the middle of q9 and q18, staged and eager
    python bench/run.py skew                     a key with half of the rows, in joins, group-bys, windows and sorts
    python bench/run.py start|rows|tasks|shuffle|flight|scheduler

tpch, tpcds: suites.py.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "lib"))
import brantlib  # noqa: E402
import compare  # noqa: E402
import suites  # noqa: E402
import tpch  # noqa: E402

BUILD = brantlib.BUILD


def brant_run(session, text):
    """(seconds, CPU seconds of executors, stats)"""
    t0 = time.perf_counter()
    _, st = session.run(text)
    return time.perf_counter() - t0, st.cpu_seconds, st


class Watched:
    """A session of 4 workers, views made, its workers joined; when tasks were done, and a kill at the nth of them."""

    def __init__(self, a, mode, kill_at=0):
        self.kill_at, self.pids, self.done, self.on = kill_at, {}, [], False
        self.session = brantlib.Session(workers=4, threads=1, memory=a.memory, distribute="always", mode=mode,
                                        settings=dict(x.split("=", 1) for x in a.set))
        self.session.subscribe(self.take)
        for v in tpch.views(a.scale):
            self.session.run(v)
        self.session.run("select 1 as one")
        self.session.run(f"select count(*) from read_parquet('{tpch.folder(a.scale)}/nation/*.parquet')")  # each worker has an executor

    def take(self, e):
        """On the engine's thread: the kill is there at the very event."""
        if e["type"] == "worker_joined":
            self.pids[e["worker"]] = e["pid"]
        elif e["type"] == "task_done" and self.on:
            self.done.append((time.perf_counter(), e["stage"], e["task"], e["worker"]))
            if len(self.done) == self.kill_at:
                os.kill(self.pids[e["worker"]], signal.SIGKILL)

    def run(self, text):
        """(seconds, table)"""
        self.done, self.on, t0 = [], True, time.perf_counter()
        table, self.stats = self.session.run(text)
        self.on = False
        return time.perf_counter() - t0, table

    def half(self, seconds):
        """How many tasks were done when half of the last run's time had passed."""
        end = self.done[-1][0]
        return max(1, sum(t <= end - seconds / 2 for t, *_ in self.done))


def disturbed(a, mode, text, at, want):
    """(seconds, tasks that were committed again) of a run in which the worker that does task number `at` is killed then."""
    w = Watched(a, mode, at)
    with w.session:
        seconds, table = w.run(text)
        assert w.stats.workers_lost == 1, "the worker was killed too late"
        wrong = compare.difference(compare.rows_of(table), compare.rows_of(want), False)
        assert wrong is None, f"wrong rows: {wrong}"
        return seconds, len(w.done) - len({(s, t) for _, s, t, _ in w.done})


def bench_faults(a):
    os.environ.setdefault("BRANT_LOG", "error")  # that a worker was killed is no news
    tpch.make_data(a.scale)
    queries, modes = tpch.queries(), ["staged", "eager"]
    only = [int(x) for x in a.queries.split(",") if x] or [9, 18]
    print(f"\nTPC-H scale {a.scale}, 4 workers x 1 thread, medians of {a.runs}: undisturbed, and with one worker killed (SIGKILL) when half of the "
          "time has passed; a new one takes its place")
    print("| query | mode | undisturbed s | disturbed s | ratio | tasks | killed after task | tasks run again |")
    print("|---|---|---|---|---|---|---|---|")
    for nr in only:
        for mode in modes:
            calm, hurt, again, at, n = [], [], [], [], 0
            for _ in range(a.runs):  # in turn, a session each
                w = Watched(a, mode)
                with w.session:
                    seconds, table = w.run(queries[nr])
                    calm.append(seconds)
                    at.append(w.half(seconds))
                    n = len(w.done)
                seconds, tasks = disturbed(a, mode, queries[nr], at[-1], table)
                hurt.append(seconds)
                again.append(tasks)
            c, h = statistics.median(calm), statistics.median(hurt)
            print(f"| q{nr:02} | {mode} | {c:.2f} | {h:.2f} | {h / c:.2f} | {n} | {statistics.median(at):.0f} | {statistics.median(again):.0f} |",
                  flush=True)


SKEW = {
    "join": "SELECT count(*), sum(f.v + d.w), min(f.s) FROM {facts} f JOIN dims d ON f.k = d.k",
    "left join": "SELECT count(d.w), sum(f.v), min(f.s) FROM {facts} f LEFT JOIN dims d ON f.k = d.k",
    "group by": "SELECT count(*), sum(n) FROM (SELECT k, count(*) AS n, sum(v) AS s FROM {facts} GROUP BY k)",
    "group by, whole": "SELECT count(*), sum(m) FROM (SELECT k, median(v) AS m FROM {facts} GROUP BY k)",
    "distinct": "SELECT count(*) FROM (SELECT DISTINCT k, v % 8 AS r FROM {facts})",
    "window": "SELECT max(r), sum(s) FROM (SELECT row_number() OVER (PARTITION BY k ORDER BY v) AS r, sum(v) OVER (PARTITION BY k) AS s FROM {facts})",
    "sort": "SELECT v FROM {facts} ORDER BY k",
}


def bench_skew(a):
    """A key with half of the rows against keys of a few rows each, in turn; staged, joins by hash."""
    import duckdb
    folder = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"brant-bench-skew-{os.getpid()}"
    folder.mkdir()
    con = duckdb.connect(config={"threads": 2})
    rows = int(float(a.rows)) // 8
    for i in range(8):
        key = f"({i} * {rows} + i) * 7919 % 1000003"
        for name, k in (("even", key), ("skewed", f"CASE WHEN i % 2 = 0 THEN 7 ELSE {key} END")):
            con.execute(f"COPY (SELECT {k} AS k, i AS v, 'text ' || i AS s FROM range({rows}) t(i)) TO '{folder}/{name}-{i}.parquet'")
    con.execute(f"COPY (SELECT i AS k, i * 3 AS w FROM range(1000003) t(i)) TO '{folder}/dims.parquet'")
    print(f"\nA key with half of {rows * 8} rows, against even keys: 2 workers x 1 thread, staged; medians of {a.runs}")
    print("| query | even s | skewed s | ratio | ratio, adaptive = false | adapted |")
    print("|---|---|---|---|---|---|")
    sessions = {}
    try:
        for adaptive in ("true", "false"):
            s = brantlib.Session(workers=2, threads=1, distribute="always", mode="staged",
                                 settings={"broadcast_bytes": 0, "filter_bytes": 0, "adaptive": adaptive})
            sessions[adaptive] = s
            for name in ("even", "skewed", "dims"):
                s.run(f"CREATE VIEW {name} AS SELECT * FROM '{folder}/{name}{'' if name == 'dims' else '-*'}.parquet'")
        for label, text in SKEW.items():
            took = {}
            for _ in range(a.runs):
                for adaptive, s in sessions.items():
                    for facts in ("even", "skewed"):
                        took.setdefault((adaptive, facts), []).append(brant_run(s, text.format(facts=facts))[0])
            m = {k: statistics.median(v) for k, v in took.items()}
            plan = json.loads(sessions["true"].explain(text.format(facts="skewed"), True, True))
            said = "; ".join(st["measured"]["adapted"] for st in plan["stages"] if "adapted" in st["measured"])
            print(f"| {label} | {m['true', 'even']:.2f} | {m['true', 'skewed']:.2f} | {m['true', 'skewed'] / m['true', 'even']:.2f} "
                  f"| {m['false', 'skewed'] / m['false', 'even']:.2f} | {said} |", flush=True)
    finally:
        for s in sessions.values():
            s.close()
        shutil.rmtree(folder)


def timed(command, n):
    seconds = []
    for _ in range(n):
        t0 = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - t0)
    return statistics.median(seconds)


def bench_start(a):
    brant = str(BUILD / "brant")
    tpch.make_data("0.1")
    nation = tpch.folder("0.1") / "nation"
    n = max(a.runs, 5)
    print(f"\nStart, medians of {n} processes")
    print(f'brant sql "select 42": {timed([brant, "sql", "select 42"], n) * 1e3:.0f} ms')
    cold = [brant, "sql", "--workers", "3", "--distribute", "always", f"select count(*) from '{nation}/*.parquet'"]
    print(f"first distributed result after a cold start of 3 workers, process end included: {timed(cold, n) * 1e3:.0f} ms")


COLUMNS = ("l_orderkey l_partkey l_suppkey l_linenumber l_quantity l_extendedprice l_discount l_tax l_returnflag l_linestatus l_shipdate "
           "l_commitdate l_receiptdate l_shipinstruct l_shipmode l_comment").split()


def bench_rows(a):
    """lineitem through 64 partitions by l_orderkey, then counted: all of its columns move, or the key alone."""
    tpch.make_data(a.scale)
    counted = ", ".join(f"count({c})" for c in COLUMNS)
    texts = {"all columns": f"SELECT {counted} FROM repartition((SELECT * FROM lineitem), 64, l_orderkey)",
             "the key": "SELECT count(*) FROM repartition((SELECT * FROM lineitem), 64, l_orderkey)"}
    print(f"\nlineitem (scale {a.scale}) into 64 partitions by l_orderkey, counted; 2 workers x 1 thread, {a.mode}; medians of {a.runs}")
    print("| what moves | s | CPU s | MB shuffled | GB/s |\n|---|---|---|---|---|")
    with brantlib.Session(workers=2, threads=1, memory=a.memory, distribute="always", mode=a.mode) as s:
        for v in tpch.views(a.scale):
            s.run(v)
        s.run(texts["the key"])  # the workers are there
        for what, text in texts.items():
            runs = [brant_run(s, text) for _ in range(a.runs)]
            seconds, cpu_s = (statistics.median(r[k] for r in runs) for k in (0, 1))
            moved = runs[-1][2].bytes_shuffled
            print(f"| {what} | {seconds:.2f} | {cpu_s:.2f} | {moved / 1e6:.0f} | {moved / 1e9 / seconds:.2f} |", flush=True)


def bench_tasks(a):
    """What one more task costs, from schedule to commit: its input is an empty partition."""
    few, many = 2, 1026
    tpch.make_data("0.1")
    text = ("SELECT count(*), max(l_comment) FROM repartition((SELECT l_orderkey, l_comment FROM lineitem WHERE l_comment = 'nothing like it'), "
            "{}, l_orderkey)")
    with brantlib.Session(workers=1, threads=1, distribute="always", mode=a.mode) as s:
        for v in tpch.views("0.1"):
            s.run(v)
        s.run(text.format(few))
        runs = {n: [brant_run(s, text.format(n)) for _ in range(a.runs)] for n in (few, many)}
    if runs[many][-1][2].tasks - runs[few][-1][2].tasks != many - few:
        print("\nOne task with an empty input: tasks of empty partitions are not run, so there is nothing to measure")
        return
    wall, cpu_s = (statistics.median(r[k] for r in runs[many]) - statistics.median(r[k] for r in runs[few]) for k in (0, 1))
    print(f"\nOne task with an empty input, of {many} after each other on one slot (schedule, bind, read, write, commit), medians of {a.runs}: "
          f"{wall / (many - few) * 1e3:.2f} ms, of it {cpu_s / (many - few) * 1e3:.2f} ms CPU of the executor", flush=True)


def program(name, *args):
    subprocess.run(["cmake", "--build", str(BUILD), "--target", name], check=True, stdout=subprocess.DEVNULL)
    print(f"\n{name} {' '.join(args)}".rstrip(), flush=True)
    subprocess.run([str(BUILD / name), *args], check=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("part", nargs="?", default="all",
                    choices=["all", "tpch", "tpcds", "start", "rows", "tasks", "shuffle", "flight", "scheduler", "faults", "skew"])
    ap.add_argument("--scale", default="1")
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--queries", default="")
    ap.add_argument("--memory", type=int, default=0, help="bytes a worker; 0: the default")
    ap.add_argument("--rows", default="10000000", help="of the shuffle and skew benchmarks")
    ap.add_argument("--mode", default="auto", choices=["auto", "staged", "eager"], help="of tpch, tpcds, rows, tasks")
    ap.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    a = ap.parse_args()
    failed = 0
    if a.part in ("all", "tpch"):
        failed |= suites.run(a, suites.TpcH)
    if a.part in ("all", "tpcds"):
        failed |= suites.run(a, suites.TpcDs)
    if a.part in ("all", "faults"):
        bench_faults(a)
    if a.part in ("all", "skew"):
        bench_skew(a)
    if a.part in ("all", "start"):
        bench_start(a)
    if a.part in ("all", "rows"):
        bench_rows(a)
    if a.part in ("all", "tasks"):
        bench_tasks(a)
    if a.part in ("all", "shuffle"):
        program("shuffle_bench", "--rows", a.rows, "--runs", str(a.runs))
    if a.part in ("all", "flight"):
        program("flight_bench")
    if a.part in ("all", "scheduler"):
        program("sched_bench")
        program("coord_bench")
    sys.exit(failed)


if __name__ == "__main__":
    main()
