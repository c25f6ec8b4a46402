#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A large repartition: 10 GB of rows through 512 partitions by key, with 1 GB of memory a worker; nothing lost, each key in one partition.

    python examples/repartition.py                    # 10 GB, 2 local workers of 1 thread
    python examples/repartition.py --gb 1 --partitions 64 --memory 512

The rows are made here, by the engine, as Parquet files; they and all else go at the end (--dir keeps the files and uses them again).
Prints seconds and GB a second, the most memory of each worker (PSS of worker and executor), what went to disk; and compares the
number of rows, keys and the sum of all rows' hashes before and after.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
if importlib.util.find_spec("brant") is None:  # not installed: from the build tree
    sys.path.insert(0, str(ROOT / "python"))
    os.environ.setdefault("BRANT_LIB_DIR", str(ROOT / "build"))
BRANCHES = 16        # of the query that makes the rows: a task and a file each
ROWS_PER_KEY = 1000
SAMPLE_S = 0.5
WORDS = "ableacidagedalsoareaarmyawaybabybackballbandbankbasebathbearbeatbeenbeerbellbeltbestbillbirdblow"
COLUMNS = "id, key, seen, amount, quantity, country, page, agent"


# ---- the rows

def rows_sql(first, last, keys):
    words = [f"substr('{WORDS}', 1 + 4 * (h // {(len(WORDS) // 4) ** k} % {len(WORDS) // 4})::INTEGER, 4)" for k in range(5)]
    text = f"concat_ws('-', {', '.join(words)})"
    return (f"SELECT id, (h % {keys})::BIGINT AS key, TIMESTAMP '2026-01-01' + to_seconds(id) AS seen, (h // 977 % 100000) / 100 AS amount, "
            f"(h // 31 % 100)::INTEGER AS quantity, substr('defrinjpus', 1 + 2 * (h // 7 % 5)::INTEGER, 2) AS country, {text} AS page, "
            f"concat('agent/', h // 13 % 40, '.', h // 11 % 1000, ' (like other agents)') AS agent "
            f"FROM (SELECT range AS id, hash(range) AS h FROM range({first}, {last}))")


def make(session, folder, gb):
    """Parquet files of so many GB of rows (as they are in memory); the pattern of their names."""
    files, done = f"'{folder}/rows/**/*.parquet'", folder / "made.json"
    if done.exists() and json.loads(done.read_text()) == gb:
        return files
    shutil.rmtree(folder / "rows", ignore_errors=True)
    size = bytes_of(session, f"({rows_sql(0, 10000, 100)})") / 10000
    rows = int(gb * 1e9 / size)
    keys, step = max(1, rows // ROWS_PER_KEY), -(-rows // BRANCHES)
    parts = [rows_sql(i * step, min(rows, (i + 1) * step), keys) for i in range(BRANCHES)]
    session.execute(f"COPY ({' UNION ALL '.join(parts)}) TO '{folder}/rows/' (FORMAT parquet)").arrow()
    done.write_text(json.dumps(gb))
    return files


def one(session, text):
    """The only row, and how the query was."""
    result = session.execute(text)
    return result.arrow().to_pylist()[0], result.stats()


def bytes_of(session, source):
    """As Arrow has them, without bitmaps."""
    strings = " + ".join(f"strlen({c}) + 4" for c in ("country", "page", "agent"))
    return int(one(session, f"SELECT sum({strings} + 36)::BIGINT AS n FROM {source}")[0]["n"])


# ---- the work

def before(session, files):
    """Rows, keys, sum of hashes of the files as they are."""
    return one(session, f"SELECT count(*) AS n, sum(hash({COLUMNS})) AS hashes, count(DISTINCT key) AS keys FROM {files}")[0]


def after(session, files, partitions, by="key"):
    """The same of all partitions together, each of which is summed up on its own: `groups` is the sum of their numbers of keys, so it
    is `keys` if no key is in two of them. The number of a row's task is its partition's."""
    moved = f"SELECT *, monotonically_increasing_id() // {1 << 36} AS part FROM repartition((SELECT {COLUMNS} FROM {files}), {partitions}, {by})"
    keys = f"SELECT key, part, count(*) AS n, sum(hash({COLUMNS})) AS hashes FROM ({moved}) GROUP BY key, part"
    return one(session, "SELECT sum(n)::BIGINT AS n, sum(hashes) AS hashes, count(DISTINCT key) AS keys, count(*) AS groups, "
                        f"count(DISTINCT part) AS parts FROM ({keys})")


# ---- memory

def pss(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("Pss:"))
    except (OSError, StopIteration):  # it has ended
        return 0


def family(pid):
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    return [pid] + [p for c in children for p in family(int(c))]


class Memory:
    """The largest PSS of each worker with its children, looked at from time to time."""

    def __init__(self, session):
        self.peaks, self._end = {}, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        session.subscribe(self._event)

    def _event(self, text):
        event = json.loads(text)
        if event["type"] == "worker_joined":
            self.peaks[event["pid"]] = 0

    def start(self):
        self._thread.start()

    def _run(self):
        while not self._end.wait(SAMPLE_S):
            for pid in list(self.peaks):
                self.peaks[pid] = max(self.peaks[pid], sum(map(pss, family(pid))))

    def end(self):
        self._end.set()
        self._thread.join()
        return sorted(self.peaks.values())


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gb", type=float, default=10)
    parser.add_argument("--partitions", type=int, default=512)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", type=int, default=1000, help="MB a worker")
    parser.add_argument("--dir", help="keep the files there")
    options = parser.parse_args(arguments)
    import brant
    folder = pathlib.Path(options.dir or tempfile.mkdtemp(prefix="brant-repartition-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with brant.Session(workers=options.workers, threads=1, memory=options.memory * 10**6, temp_dir=str(folder), distribute="always",
                           progress=False) as session:
            memory, at = Memory(session), time.monotonic()
            files = make(session, folder, options.gb)
            made = time.monotonic() - at
            want, size = before(session, files), bytes_of(session, files)
            print(f"{want['n']} rows, {size / 1e9:.2f} GB in memory, {want['keys']} keys; made in {made:.1f} s")
            memory.start()
            got, stats = after(session, files, options.partitions)
            peaks = memory.end()
            print(f"{options.partitions} partitions by key, {options.workers} workers of {options.memory} MB: {stats['seconds']:.1f} s, "
                  f"{size / 1e9 / stats['seconds']:.2f} GB/s, {stats['cpu_seconds'] / (size / 1e9):.2f} CPU s/GB")
            print(f"shuffled {stats['bytes_shuffled'] / 1e9:.2f} GB, to disk {stats['spilled_bytes'] / 1e9:.2f} GB; most memory of a worker: "
                  + ", ".join(f"{p / 1e6:.0f} MB" for p in peaks))
    finally:
        if not options.dir:
            shutil.rmtree(folder, ignore_errors=True)
    right = all(got[k] == want[k] for k in want) and got["groups"] == got["keys"]
    print(f"{got['n']} rows after, {got['keys']} keys, {got['groups']} pairs of key and partition, {got['parts']} partitions with rows: "
          + ("the same rows, each key in one partition" if right else f"WRONG, before: {want}"))
    if not right:
        return 1
    if max(peaks, default=0) > options.memory * 10**6:
        print("a worker had more memory than it was given")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
