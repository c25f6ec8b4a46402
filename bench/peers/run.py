#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench-peers: brant beside other engines, in one run: TPC-H, a shuffle, a large repartition, duplicates, embeddings.

    python bench/peers/run.py                                     everything that bench/peers/README.md says
    python bench/peers/run.py --parts tpch,shuffle --engines brant,duckdb,sail --scale 0.1
    python bench/peers/run.py --parts install                     only their packages, into build/peers

Engines come one after the other, each in its own processes, 2 workers each, with the same files. A query that fails or takes longer than
--timeout says so in its cell, its engine is started anew, and the rest goes on. Memory is the largest sum of PSS over all processes of an
engine. Prints Markdown; also to build/peers/report.md.
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "tests" / "lib"), str(ROOT / "examples"), str(ROOT / "python")]
os.environ.setdefault("BRANT_LIB_DIR", os.environ.get("BRANT_BUILD_DIR", str(ROOT / "build")))
import compare  # noqa: E402
import tpch  # noqa: E402

PEERS = pathlib.Path(os.environ.get("BRANT_PEERS_DIR", pathlib.Path(os.environ["BRANT_LIB_DIR"]) / "peers"))
PACKAGES = {"daft": "daft", "daft-ray": "daft", "daft-flight": "daft", "spark": "spark", "sail": "sail", "vane": "vane"}
ENGINES = ["brant", "duckdb", *PACKAGES]
WORKLOADS = {"embed": ["brant", "daft"], "dedup": ["brant", "daft", "daft-ray"], "repartition": ["brant", "daft-ray", "daft-flight"]}
VERSIONS = {}  # of the engines that started
INSTALL_S, START_S, SAMPLE_S = 900, 180, 0.5
LINEITEM = ("l_orderkey l_partkey l_suppkey l_linenumber l_quantity l_extendedprice l_discount l_tax l_returnflag l_linestatus l_shipdate "
            "l_commitdate l_receiptdate l_shipinstruct l_shipmode l_comment").split()


class Failed(Exception):
    """What a cell says."""


# ---- their packages

def install(name):
    """A virtual environment with exactly what requirements/<name>.txt lists; the path of its Python."""
    wanted, folder = (HERE / "requirements" / f"{name}.txt").read_text(), PEERS / f"engine-{name}"  # beside those of other benchmarks
    python, mark = folder / "bin" / "python", folder / "installed.txt"
    if mark.exists() and mark.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=INSTALL_S, capture_output=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "-r",
                        str(HERE / "requirements" / f"{name}.txt")], check=True, timeout=INSTALL_S, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        raise Failed(f"not installed after {INSTALL_S} s") from None
    except subprocess.CalledProcessError as e:
        raise Failed(f"not installed: {last_line(str(e.stderr))}") from None
    mark.write_text(wanted)
    return python


def last_line(text):
    lines = [x.strip() for x in text.strip().splitlines() if x.strip()]
    return lines[-1] if lines else "no message"


# ---- processes

def tree(pid):
    try:
        children = [c for t in os.listdir(f"/proc/{pid}/task") for c in pathlib.Path(f"/proc/{pid}/task/{t}/children").read_text().split()]
    except OSError:
        return [pid]
    return [pid] + [p for c in children for p in tree(int(c))]


def pss(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("Pss:"))
    except (OSError, StopIteration):  # it has ended
        return 0


class Process:
    """An engine in its processes; ended with all that it started."""

    def __init__(self, name, setup):
        self.name, self.peak = name, 0
        python = install(PACKAGES[name]) if name in PACKAGES else pathlib.Path(sys.executable)
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
        setup = {**setup, "scratch": str(self.scratch)}
        self.log = open(self.scratch / "log", "w+b")
        env = {**os.environ, "RAY_TMPDIR": str(self.scratch), "RAY_USAGE_STATS_ENABLED": "0", "DO_NOT_TRACK": "true", "DAFT_ANALYTICS_ENABLED": "0",
               "PYTHONPATH": ":".join(setup["path"]), "PYTHONWARNINGS": "ignore", "RAY_DEDUP_LOGS": "0", "BRANT_LOG": "error"}
        env["PATH"] = f"{python.parent}:{env.get('PATH', '')}"
        self.child = subprocess.Popen([str(python), str(HERE / "peer.py"), name, json.dumps(setup)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=self.log, start_new_session=True, env=env, cwd=self.scratch)
        self.replies, self.ended = queue.Queue(), threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            self.version = self._reply(START_S)["version"]
        except Failed:
            self.end()
            raise

    def _read(self):
        for line in self.child.stdout:
            self.replies.put(json.loads(line))
        self.replies.put(None)

    def _watch(self):
        while not self.ended.wait(SAMPLE_S):
            self.peak = max(self.peak, sum(map(pss, tree(self.child.pid))))

    def _reply(self, seconds):
        try:
            reply = self.replies.get(timeout=seconds)
        except queue.Empty:
            raise Failed(f"> {seconds:.0f} s") from None
        if reply is None:
            self.log.flush()
            self.log.seek(0)
            raise Failed(f"it ended with {self.child.wait()}: {last_line(self.log.read().decode(errors='replace'))}")
        if "error" in reply:
            raise Failed(reply["error"])
        return reply

    def ask(self, seconds, work, **request):
        try:
            self.child.stdin.write((json.dumps({"work": work, **request}) + "\n").encode())
            self.child.stdin.flush()
        except BrokenPipeError:
            pass  # the reply says how it ended
        return self._reply(seconds)

    def end(self):
        self.ended.set()
        seen = set()
        while True:  # what is started meanwhile too
            left = [p for p in tree(self.child.pid) if p not in seen]
            if not left:
                break
            for pid in reversed(left):
                seen.add(pid)
                if pid != self.child.pid:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
        self.child.kill()
        self.child.wait()
        self.log.close()
        shutil.copyfile(self.scratch / "log", PEERS / f"{self.name}.log")  # to look into
        shutil.rmtree(self.scratch, ignore_errors=True)


class Engine:
    """Started when it is asked, and again after it was lost."""

    def __init__(self, name, setup):
        self.name, self.setup, self.process, self.peak, self.version, self.broken = name, setup, None, 0, "", None

    def ask(self, seconds, work, **request):
        if self.broken:
            raise Failed(self.broken)
        if self.process is None:
            try:
                self.process = Process(self.name, self.setup)
            except Failed as e:
                self.broken = str(e)  # it isn't tried again
                raise
            self.version = self.process.version
        try:
            return self.process.ask(seconds, work, **request)
        except Failed as e:
            if str(e).startswith(("> ", "it ended")):
                self.stop()
            raise

    def stop(self):
        if self.process is None:
            return 0
        peak = self.process.peak
        self.peak = max(self.peak, peak)
        self.process.end()
        self.process = None
        return peak


# ---- parts

class Report:
    def __init__(self):
        self.lines, self.notes = [], collections.OrderedDict()

    def say(self, text=""):
        self.lines.append(text)
        print(text, flush=True)

    def failed(self, engine, what, e):
        """The text of a cell, and a note with the reason."""
        text = re.sub(r"\s+", " ", str(e)).replace("|", "/")
        self.notes.setdefault((engine, text[:160]), []).append(what)
        return "fails" if not text.startswith("> ") else text

    def tell_notes(self):
        for (engine, text), where in self.notes.items():
            self.say(f"- {engine}, {', '.join(where)}: {text}")
        self.notes.clear()
        self.say()


def files_of(scale):
    """The TPC-H files written again by DuckDB, since Daft can't read the string views that tpchgen-cli's schema speaks of; the same for all."""
    import duckdb
    source, out = tpch.make_data(scale), PEERS / f"tpch-{scale}"
    if not out.is_dir():
        partial = out.with_name(out.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        for f in sorted(source.glob("*/*.parquet")):
            to = partial / f.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            duckdb.execute(f"COPY (SELECT * FROM read_parquet('{f}')) TO '{to}' (FORMAT parquet)")
        partial.rename(out)
    return {t: f"{out}/{t}/*.parquet" for t in tpch.TABLES}


def rows(path):
    import pyarrow as pa
    with pa.OSFile(path, "rb") as f:
        table = pa.ipc.open_file(f).read_all()
    os.unlink(path)
    return [tuple(loose(v) for v in row) for row in compare.rows_of(table)]


def loose(v):
    """Engines have different types for sums and averages."""
    if isinstance(v, bool) or v is None or isinstance(v, str):
        return v
    try:
        return float("%.6g" % float(v))
    except (TypeError, ValueError):
        return str(v)[:10]  # a date, or the date of a timestamp


def close(a, b):
    same = lambda x, y: x == y or (isinstance(x, float) and isinstance(y, float) and abs(x - y) <= 1e-4 * max(abs(x), abs(y)) + 0.011)  # noqa: E731
    return len(a) == len(b) and all(len(x) == len(y) and all(map(same, x, y)) for x, y in zip(sorted(a, key=str), sorted(b, key=str)))


def best(engine, runs, seconds, work, **request):
    """The best of the runs, with the last reply; a failed one fails all."""
    took = []
    for _ in range(runs):
        reply = engine.ask(seconds, work, **request)
        took.append(reply["seconds"])
    return min(took), reply


def run_tpch(report, engines, options, tables):
    texts, out = tpch.queries(), str(PEERS / "result.arrow")
    only = [int(q) for q in options.queries.split(",") if q] or sorted(texts)
    cells, want, peaks = collections.defaultdict(dict), {}, {}
    for engine in sorted(engines, key=lambda e: e.name != "duckdb"):  # DuckDB has the answers
        for nr in only:
            try:
                seconds, reply = best(engine, options.runs, options.timeout, "tpch", sql=texts[nr], result=out)
                got = rows(reply["result"])
                if engine.name == "duckdb":
                    want[nr] = got
                elif nr in want and not close(got, want[nr]):
                    raise Failed("another answer than DuckDB's")
                cells[engine.name][nr] = seconds
            except Failed as e:
                cells[engine.name][nr] = report.failed(engine.name, f"q{nr:02}", e)
        engine.stop()
        VERSIONS.setdefault(engine.name, engine.version)
        peaks[engine.name] = engine.peak
        print(f"  ({engine.name} done)", file=sys.stderr, flush=True)
    names = [e.name for e in engines]
    report.say(f"### TPC-H, scale {options.scale}: seconds, best of {options.runs}\n")
    report.say("| query | " + " | ".join(names) + " |")
    report.say("|---" * (len(names) + 1) + "|")
    for nr in only:
        report.say(f"| q{nr:02} | " + " | ".join(shown(cells[n][nr]) for n in names) + " |")
    done = {n: [nr for nr in only if isinstance(cells[n][nr], float)] for n in names}
    report.say("| **total** (of how many) | " + " | ".join(f"{sum(cells[n][q] for q in done[n]):.2f} ({len(done[n])})" for n in names) + " |")
    report.say("| of the same queries: its seconds / brant's | " + " | ".join(ratio(cells, done, n) for n in names) + " |")
    report.say("| most memory, MB | " + " | ".join(f"{peaks[n] / 1e6:.0f}" if peaks[n] else "—" for n in names) + " |\n")
    report.tell_notes()


def shown(cell, digits=2):
    return f"{cell:.{digits}f}" if isinstance(cell, float) else cell


def ratio(cells, done, name):
    both = [q for q in done[name] if q in done.get("brant", [])]
    return f"{sum(cells[name][q] for q in both) / sum(cells['brant'][q] for q in both):.2f}" if both else "—"


def single(report, title, engines, measure, what):
    """A table of one row an engine: measure(engine) gives seconds and what else there is to say."""
    result = {}
    report.say(f"### {title}\n")
    for engine in engines:
        try:
            result[engine.name] = measure(engine)
        except Failed as e:
            result[engine.name] = (report.failed(engine.name, what, e), "")
        VERSIONS.setdefault(engine.name, engine.version)
        peak = engine.stop()
        result[engine.name] += (f"{peak / 1e6:.0f}" if peak else "—",)
    ours = result.get("brant", (None,))[0]
    report.say("| engine | seconds | / brant's | most memory, MB | |")
    report.say("|---|---|---|---|---|")
    for name, (seconds, more, peak) in result.items():
        times = f"{seconds / ours:.2f}" if isinstance(seconds, float) and isinstance(ours, float) else "—"
        report.say(f"| {name} | {shown(seconds)} | {times} | {peak} | {more} |")
    report.say()
    report.tell_notes()


def counted(engine, runs, seconds, source, partitions, key, columns, n):
    best_s, reply = best(engine, runs, seconds, "moved", source=source, partitions=partitions, key=key, columns=columns, result=str(PEERS / "result.arrow"))
    got = rows(reply["result"])
    if got != [tuple([float("%.6g" % n)] * len(columns))]:
        raise Failed(f"wrong counts: {str(got)[:60]}")
    return best_s, ""


def run_shuffle(report, engines, options, tables):
    import duckdb
    n = duckdb.sql(f"SELECT count(*) FROM read_parquet('{tables['lineitem']}')").fetchone()[0]
    for columns, what in ((LINEITEM, "all columns"), (["l_orderkey"], "one column")):
        single(report, f"lineitem (scale {options.scale}) into 64 partitions by l_orderkey, values of {what} counted, best of {max(2, options.runs)}",
               [e for e in engines if e.name not in ("duckdb", "daft", "sail")],  # they have no shuffle, or drop it
               lambda e, c=columns: counted(e, max(2, options.runs), options.timeout * 2, "lineitem", 64, "l_orderkey", c, n), f"{what}")


def run_repartition(report, engines, options, tables):
    import brant
    import duckdb
    import repartition
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-rows-"))
    try:
        with brant.Session(workers=2, threads=1, memory=10**9, temp_dir=str(folder), distribute="always", progress=False) as session:
            repartition.make(session, folder, options.gb)
        files = f"{folder}/rows/*.parquet"
        n = duckdb.sql(f"SELECT count(*) FROM read_parquet('{files}')").fetchone()[0]
        columns = repartition.COLUMNS.split(", ")
        setup = {**engines[0].setup, "tables": {"rows": files}, "memory": 10**9}
        single(report, f"(d) {options.gb:g} GB ({n} rows) into 512 partitions by key, counted; brant's workers have 1 GB each",
               [Engine(e.name, setup) for e in engines if e.name in WORKLOADS["repartition"]],
               lambda e: counted(e, 1, options.timeout * 10, "rows", 512, "key", columns, n), "512 partitions")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_dedup(report, engines, options, tables):
    import dedup
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-documents-"))
    try:
        (folder / "documents").mkdir()
        planted, texts = dedup.make(folder / "documents", options.documents)
        high = [(a, b) for a, b in planted if dedup.jaccard(texts[a], texts[b]) >= 0.8]

        def measure(engine):
            reply = engine.ask(options.timeout * 10, "dedup", documents=str(folder / "documents"))
            label = {int(k): v for k, v in reply["labels"].items()}
            found = sum(b in label and label.get(a) == label[b] for a, b in high)
            return reply["seconds"], f"{len(label)} documents in groups; of planted pairs above 0.8 found {found / max(1, len(high)):.3f}"

        single(report, f"(c) duplicates among {options.documents} documents: MinHash of {dedup.HASHES}, {dedup.BANDS} bands, pairs checked, components",
               [Engine(e.name, {**e.setup, "tables": {}}) for e in engines if e.name in WORKLOADS["dedup"]], measure, "dedup")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_embed(report, engines, options, tables):
    deps = pathlib.Path(os.environ.get("BRANT_DEPS_DIR", ROOT / "build" / "deps"))
    if not (ROOT / "examples" / "embed.py").exists():
        raise Failed("there is no examples/embed.py")
    if not (deps / "models" / "minilm" / ".version").exists():
        subprocess.run([str(ROOT / "deps" / "fetch.sh"), "models"], check=True, timeout=INSTALL_S)
    import embed
    import pyarrow as pa
    import pyarrow.parquet as pq
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-texts-"))
    try:
        texts = embed.read_texts(options.texts, deps)
        pq.write_table(pa.table({"id": pa.array(range(len(texts)), pa.int64()), "text": texts}), folder / "texts.parquet",
                       row_group_size=max(embed.BATCH, len(texts) // 40))
        sums = []

        def measure(engine):
            reply = engine.ask(options.timeout * 10, "embed", texts=str(folder / "texts.parquet"), model=str(deps / "models" / "minilm"),
                               out=str(folder / engine.name))
            sums.append(reply["sum"])
            if reply["rows"] != len(texts) or abs(reply["sum"] - sums[0]) > 1e-3 * abs(sums[0]):
                raise Failed(f"{reply['rows']} vectors with sum {reply['sum']}")
            return reply["seconds"], f"{len(texts) / reply['seconds']:.0f} texts/s"

        single(report, f"(a) {options.texts} texts to vectors by MiniLM, 2 processes, Parquet to Parquet",
               [Engine(e.name, {**e.setup, "tables": {}}) for e in engines if e.name in WORKLOADS["embed"]], measure, "embed")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


PARTS = {"tpch": run_tpch, "shuffle": run_shuffle, "embed": run_embed, "dedup": run_dedup, "repartition": run_repartition}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="of install, " + ", ".join(PARTS))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--scale", default="1")
    parser.add_argument("--queries", default="")
    parser.add_argument("--runs", type=int, default=2, help="of each query; the best counts")
    parser.add_argument("--timeout", type=float, default=60, help="seconds a query; workloads get 10 times of it")
    parser.add_argument("--gb", type=float, default=10)
    parser.add_argument("--documents", type=int, default=100000)
    parser.add_argument("--texts", type=int, default=20000)
    options = parser.parse_args(arguments)
    parts, names, report = options.parts.split(","), options.engines.split(","), Report()
    unknown = set(parts) - set(PARTS) - {"install"} | set(names) - set(ENGINES)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    PEERS.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(PACKAGES[n] for n in names if n in PACKAGES):
        try:
            install(name)
        except Failed as e:
            print(f"{name}: {e}", file=sys.stderr)
    tables = files_of(options.scale)
    setup = {"tables": tables, "path": sys.path[:3] + [str(HERE)]}
    report.say(f"{datetime.date.today()}, {os.cpu_count()} cores\n")
    for part in [p for p in PARTS if p in parts]:
        engines = [Engine(n, setup) for n in names]
        begin = time.monotonic()
        try:
            PARTS[part](report, engines, options, tables)
        except Exception as e:  # the rest goes on
            report.say(f"{part}: {type(e).__name__}: {e}\n")
        finally:
            for engine in engines:
                engine.stop()
        print(f"  ({part}: {time.monotonic() - begin:.0f} s)", file=sys.stderr, flush=True)
    report.say("Versions: " + "; ".join(f"{n} {v}" for n, v in VERSIONS.items() if v) + ".")
    (PEERS / "report.md").write_text("\n".join(report.lines) + "\n")


if __name__ == "__main__":
    main()
