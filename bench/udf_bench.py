#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a function that does nothing costs a row: brant, Daft and Ray Data in one run, turn by turn.

    build/deps/venv/bin/python bench/udf_bench.py                # all; installs daft and ray into build/peers first
    build/deps/venv/bin/python bench/udf_bench.py --only brant --rows 8000000 --rounds 9

Each sums a column of int64 from the same Parquet file (8 row groups), once as it is and once through an identity function of whole batches of
8,192 rows; the difference is divided by the rows. Two cores each. Printed: medians over rounds, with the least and the most. Daft twice: as it
runs functions by default (in its own process), and in processes, as brant and Ray do.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = pathlib.Path(os.environ.get("BRANT_PEERS_DIR", ROOT / "build" / "peers"))
PACKAGES = {"daft": ["daft==0.7.26", "pyarrow", "numpy"], "ray": ["ray[data]==2.60.0", "pyarrow", "numpy"]}
BATCH, CORES = 8192, 2
NAMES = {"brant": "brant", "daft": "Daft, in its own process", "daft-process": "Daft, in processes", "ray": "Ray Data"}


# ---- one engine each: a function that sums the file's column, through the identity or not


def brant_sum(path):
    if importlib.util.find_spec("brant") is None:  # not installed: from the build tree
        sys.path.insert(0, str(ROOT / "python"))
        os.environ.setdefault("BRANT_LIB_DIR", str(ROOT / "build"))
    import brant
    import pyarrow as pa
    from brant import col
    brant.init(workers=CORES, threads=1, distribute="always", progress=False)

    @brant.func.batch(return_dtype=int, batch_size=BATCH)
    def same(x: pa.Array):
        return x

    def run(through):
        frame = brant.read_parquet(path)
        frame = frame.select(same(col("i")).alias("i")) if through else frame
        return int(frame.agg(col("i").sum().alias("s")).to_pydict()["s"][0])

    return run


def daft_sum(path, use_process):
    import daft
    daft.set_runner_native(num_threads=CORES)

    @daft.udf(return_dtype=daft.DataType.int64(), batch_size=BATCH, use_process=use_process, concurrency=CORES if use_process else None)
    def same(x):
        return x

    def run(through):
        frame = daft.read_parquet(path)
        frame = frame.select(same(daft.col("i")).alias("i")) if through else frame
        return int(frame.agg(daft.col("i").sum().alias("s")).to_pydict()["s"][0])

    return run


def ray_sum(path):
    import ray
    ray.init(num_cpus=CORES, include_dashboard=False, log_to_driver=False, logging_level="error", object_store_memory=500_000_000)
    ray.data.DataContext.get_current().enable_progress_bars = False

    def run(through):
        data = ray.data.read_parquet(path)
        if through:
            data = data.map_batches(lambda batch: batch, batch_size=BATCH, batch_format="pyarrow")
        return int(data.sum("i"))

    return run


def serve(engine, path):
    """A line of "0" or "1" comes in, a line with seconds and sum goes out."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines print is no answer
    run = {"brant": brant_sum, "ray": ray_sum, "daft": lambda p: daft_sum(p, False), "daft-process": lambda p: daft_sum(p, True)}[engine](path)
    print(json.dumps("ready"), file=out, flush=True)
    for line in sys.stdin:
        begin = time.monotonic()
        total = run(line.strip() == "1")
        print(json.dumps([time.monotonic() - begin, total]), file=out, flush=True)


# ---- the comparison


def interpreter(engine):
    """The Python that has it; its environment is made when it is not there."""
    name = engine.partition("-")[0]
    if name == "brant":
        return sys.executable
    python = PEERS / name / "bin" / "python"
    if not python.exists():
        print(f"installing {' '.join(PACKAGES[name])}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(PEERS / name)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES[name]], check=True)
    return str(python)


class Engine:
    def __init__(self, name, path):
        env = {k: v for k, v in os.environ.items() if name == "brant" or k != "PYTHONPATH"}
        self.said = None if "-v" in sys.argv else tempfile.TemporaryFile("w+")
        self.popen = subprocess.Popen([interpreter(name), __file__, "--serve", name, "--path", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=self.said, text=True, env=env)
        self.answer()

    def answer(self):
        line = self.popen.stdout.readline()
        if not line:
            if self.said:
                self.said.seek(0)
            raise SystemExit(self.said.read()[-3000:] if self.said else "it ended")
        return json.loads(line)

    def seconds(self, through, want):
        self.popen.stdin.write(f"{int(through)}\n")
        self.popen.stdin.flush()
        seconds, total = self.answer()
        assert total == want, (total, want)
        return seconds

    def close(self):
        self.popen.stdin.close()
        self.popen.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("-v", action="store_true", help="what the engines say on standard error")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.path)
        return 0
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    with tempfile.TemporaryDirectory(prefix="brant-udf-bench-") as folder:
        path = pathlib.Path(folder) / "rows.parquet"
        pq.write_table(pa.table({"i": pa.array(np.arange(options.rows))}), path, row_group_size=-(-options.rows // 8))
        want = options.rows * (options.rows - 1) // 2
        costs, plain = {}, {}
        engines = {name: Engine(name, path) for name in options.only.split(",")}
        for name, engine in engines.items():
            for through in (False, True):  # processes are there, files are in the page cache
                engine.seconds(through, want)
        for _ in range(options.rounds):
            for name, engine in engines.items():
                without = engine.seconds(False, want)
                costs.setdefault(name, []).append((engine.seconds(True, want) - without) / options.rows * 1e6)
                plain.setdefault(name, []).append(without)
        for engine in engines.values():
            engine.close()
    print(f"identity over int64, {options.rows:,} rows in batches of {BATCH:,}, {CORES} cores, {options.rounds} rounds")
    print("| | µs a row, median | least to most | s without the function |\n|---|---|---|---|")
    for name, c in costs.items():
        print(f"| {NAMES[name]} | {statistics.median(c):.3f} | {min(c):.3f} to {max(c):.3f} | {statistics.median(plain[name]):.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
