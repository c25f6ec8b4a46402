#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stream through a function: does memory stay within its bound, whatever the amount of data?

    build/deps/venv/bin/python bench/udf_memory.py               # 10 GB through two workers, each with all its processes below 1 GB
    build/deps/venv/bin/python bench/udf_memory.py --gigabytes 2 --memory 256

Rows of 1 KiB are made by SQL, go through a function of batches that returns them changed, and are added up. Memory is the proportional set size of a
worker, its executor and the processes of its functions together, looked at here every 0.2 s, beside what the workers themselves report.
Ends with 1 if a sum is wrong or a worker had more.
"""
import argparse
import importlib.util
import os
import pathlib
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
if importlib.util.find_spec("brant") is None:  # not installed: from the build tree
    sys.path.insert(0, str(ROOT / "python"))
    os.environ.setdefault("BRANT_LIB_DIR", str(ROOT / "build"))
ROW, LIMIT, LOOK_S = 1024, 1_000_000_000, 0.2


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def trees(root):
    """{pid of a worker below root: all processes of its tree}."""
    parents = {int(p): int(stat[1]) for p in os.listdir("/proc") if p.isdigit() and (stat := read(f"/proc/{p}/stat").rpartition(b")")[2].split())}
    workers = {p: {p} for p, parent in parents.items() if parent == root and read(f"/proc/{p}/comm").startswith(b"brant-worker")}
    for pid in parents:
        at = pid
        while at in parents and at not in workers:
            at = parents[at]
        if at in workers:
            workers[at].add(pid)
    return workers


def pss(pid):
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0


class Watch(threading.Thread):
    """The most that one worker had, and the most of its parts then."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.parts, self.over = 0, [], threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(LOOK_S):
            for pids in trees(os.getpid()).values():
                parts = sorted((pss(p) for p in pids), reverse=True)
                if sum(parts) > self.most:
                    self.most, self.parts = sum(parts), parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", type=int, default=512, help="--memory of a worker, MiB")
    options = parser.parse_args()
    import brant
    import pyarrow as pa

    @brant.func.batch(return_dtype="VARCHAR")
    def turned(x: pa.Array):
        import pyarrow.compute as pc
        return pc.utf8_upper(x)

    rows = int(options.gigabytes * 1e9 / ROW / options.workers)
    watch = Watch()
    with brant.Session(workers=options.workers, threads=1, memory=options.memory << 20, distribute="always", progress=False) as s:
        f = turned._function(None, turned._arguments)
        f.register(s)
        parts = [f"select repeat(md5((i + {k * rows})::varchar), 32) as t from range({rows}) r(i)" for k in range(options.workers)]
        begin = time.monotonic()
        result = s.execute(f"select count(*)::bigint n, sum(length(u))::bigint b, count(*) filter (u = upper(t))::bigint same "
                           f"from (select t, {f.name}(t) as u from ({' union all '.join(parts)}))")
        got = result.arrow().to_pylist()[0]
        seconds, told = time.monotonic() - begin, result.stats()["peak_memory_bytes"]
    watch.over.set()
    total = rows * options.workers
    right = got == {"n": total, "b": total * ROW, "same": total}
    print(f"{total * ROW / 1e9:.2f} GB through a function on {options.workers} workers of {options.memory} MiB in {seconds:.0f} s "
          f"({total * ROW / seconds / 1e6:.0f} MB/s); {'right' if right else 'WRONG'}")
    print(f"most memory of a worker with all its processes: {watch.most / 1e6:.0f} MB seen here (its processes: "
          f"{', '.join(f'{p / 1e6:.0f}' for p in watch.parts)}), {told / 1e6:.0f} MB told by the workers; allowed {LIMIT / 1e6:.0f}")
    return 0 if right and 0 < watch.most < LIMIT and told < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
