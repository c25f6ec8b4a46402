#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random chaos: random queries under random faults at random events, each in a fresh cluster of 4 workers.

    python tests/chaos/run.py --seconds 600 --seed 1        one line a run; stops at the first answer that isn't right
    python tests/chaos/run.py --seed 17 --runs 1            the run of seed 17 again
    python tests/chaos/run.py --query q9 --mode staged --fault kill-worker:actor@task_done#12 --fault join-worker:other@stage_done#2

A seed fixes mode, query, settings and faults. It does not fix which task a worker gets first, nor how its bytes are cut: a run that
failed may need some repetitions (--runs 20 --same).
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "lib", HERE.parent / "cluster"):
    sys.path.insert(0, str(folder))
import faults  # noqa: E402
import harness  # noqa: E402
import nodes  # noqa: E402
import small_disk  # noqa: E402
import workload  # noqa: E402

# what: (weight, events it may follow)
TASK_EVENTS = ("task_done", "task_started", "task_assigned", "stage_done", "bytes")
KINDS = {
    "kill-worker": (8, TASK_EVENTS), "kill-executor": (5, TASK_EVENTS), "term-worker": (4, TASK_EVENTS), "pause-worker": (2, TASK_EVENTS),
    "stop-worker": (1, TASK_EVENTS), "stop-executor": (0.7, TASK_EVENTS), "join-worker": (2, TASK_EVENTS[:4]),
    "flip": (5, ("bytes",)), "reset": (4, ("bytes",)), "close": (4, ("bytes",)), "refuse": (2, TASK_EVENTS), "silent": (0.7, TASK_EVENTS),
    "delay": (1, TASK_EVENTS[:4]), "unlink-files": (2, TASK_EVENTS[:4]), "flip-files": (3, TASK_EVENTS[:4]),
    "cut-files": (2, TASK_EVENTS[:4]), "cancel": (1, TASK_EVENTS[:4]),
    "link-reset": (2, TASK_EVENTS), "link-refuse": (1, TASK_EVENTS[:4]), "fill-disk": (1, TASK_EVENTS[:4]),
}
VARIATIONS = {"partitions": ["0", "1", "3", "8", "13"], "shuffle_compression": ["none", "lz4"], "split_bytes": ["1MB", "0", "4MB"],
              "filter_bytes": ["0", "32MiB"], "bloom_bytes": ["0", "16MiB"], "bloom_keys": ["0"], "shuffle_backend": ["flight", "files"]}
CANCEL_S = 3  # from a cancel to the end of the query, on a busy machine


class Counts:
    """How many events of each kind, and bytes a worker, a query has without faults: where a fault may strike."""

    def __init__(self, answers):
        self.answers, self.known = answers, {}

    def of(self, query, mode):
        key = (query.sql, mode, tuple(sorted(query.settings.items())))
        if key not in self.known:
            with Place(self.answers, mode, 0) as c:
                b0 = [w.relay.bytes for w in c.workers]
                run = faults.Run(c, query).go()
                if run.error:
                    raise SystemExit(f"{query.name} fails without any fault: {run.error}")
                wrong = self.answers.difference(query, run.table)
                if wrong:
                    raise SystemExit(f"{query.name} is wrong without any fault: {wrong}")
                counts = {e: len(run.of(e)) for e in TASK_EVENTS if e != "bytes"}
                counts["bytes"] = min(w.relay.bytes - b for w, b in zip(c.workers, b0))
                counts["spilled"] = run.stats.spilled_bytes
                self.known[key] = counts
        return self.known[key]


class Place:
    """A cluster in a temporary directory; looked over for leftovers at the end."""

    def __init__(self, answers, mode, seed, disk=0):
        self.answers, self.mode, self.seed, self.disk_bytes, self.disk = answers, mode, seed, disk, None
        self.dir = tempfile.TemporaryDirectory(prefix="brant-chaos-")

    def __enter__(self):
        self.box = harness.Box(self.dir.name)
        if self.disk_bytes:
            self.disk = small_disk.Disk(self.box.dir / "disk", self.disk_bytes)
        temps = {2: self.disk.path} if self.disk else {}
        try:
            self.shared = self.box.dir / "shared"
            self.shared.mkdir()
            self.cluster = nodes.Cluster(self.box, mode=self.mode, relays=True, link_relay=True, seed=self.seed, temps=temps)
            self.cluster.session.set("shuffle_dir", str(self.shared))
            for v in self.answers.views:
                self.cluster.session.run(v)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self.cluster

    def __exit__(self, kind, *rest):
        try:
            if hasattr(self, "cluster"):
                self.cluster.close(check=kind is None)
                left = [str(p) for p in self.shared.rglob("*") if p.is_file()]
                assert kind is not None or not left, f"left over: {left}"
        finally:
            self.box.close()
            if self.disk:
                self.disk.remove()
            self.dir.cleanup()


def choose(seed, counts, queries, modes):
    """(mode, query, fault texts, replace, whether to files) of a seed."""
    r = random.Random(seed)
    mode, q = r.choice(modes), queries[r.choice(sorted(queries))]
    changed = {k: r.choice(v) for k, v in VARIATIONS.items() if r.random() < 0.3}
    q = workload.Query(q.name, q.sql, q.ordered, {**q.settings, **changed}, q.indeterminate)
    n = counts.of(q, mode)
    texts = []
    for _ in range(r.choice((1, 1, 1, 2, 2, 3))):
        kinds = {k: w for k, (w, events) in KINDS.items() if (n["spilled"] or not k.endswith("-files")) and any(n[e] for e in events)}
        if os.geteuid() != 0 or not n["spilled"] or "fill-disk" in str(texts):
            kinds.pop("fill-disk")
        what = r.choices(list(kinds), list(kinds.values()))[0]
        event = r.choice([e for e in KINDS[what][1] if n[e] > 0])
        victim = r.choice(("w1", "w2", "w3", "w4")) if event == "bytes" else r.choice(("actor", "owner", "other"))
        if what == "fill-disk":
            victim = "w2"
        nth = r.randrange(1, max(2, n[event])) if event != "bytes" else r.randrange(1, max(2, n["bytes"] * 3 // 4))
        texts.append(f"{what}:{victim}@{event}#{nth}")
    return mode, q, texts, r.random() < 0.5, r.random() < 0.25


def read_back(answers, run, target):
    """The rows of a sink's files as the run's table; None, or what is wrong with its files."""
    there = sorted(str(p.relative_to(target)) for p in target.rglob("*"))
    if run.error:
        return f"files of a COPY that failed: {there}" if there else None
    manifest = run.table.to_pylist()
    if there != sorted(m["file"] for m in manifest):
        return f"files {there}, but the manifest says {[m['file'] for m in manifest]}"
    types = answers.con.execute(f"DESCRIBE {run.query.sql}").fetchall()  # Parquet has no HUGEINT
    cells = ", ".join(f'CAST("{t[0]}" AS {t[1]}) AS "{t[0]}"' for t in types)
    run.table = answers.con.execute(f"SELECT {cells} FROM read_parquet('{target}/*.parquet')").to_arrow_table()
    return None


def one(answers, seed, mode, query, texts, replace, sink):
    """One run: (right, text)."""
    disk = 24 << 20 if any("fill-disk" in t for t in texts) else 0
    with Place(answers, mode, seed, disk) as c:
        run = faults.Run(c, query, texts, replace=replace)
        if sink:
            query.ordered, target = False, c.box.dir / "target"
            run.go(f"COPY ({query.sql}) TO '{target}/' (FORMAT parquet)")
            wrong = read_back(answers, run, target)
        else:
            wrong = run.go() and None
        if wrong:
            pass
        elif run.error:
            fine = {"NO_SPACE"} if disk else {"CANCELLED"} if run.cancelled else set()
            wrong = None if run.error.code in fine or run.handed_out() else f"error {run.error}"
        else:
            wrong = answers.difference(query, run.table)
        if run.cancelled and run.ended - run.cancelled > CANCEL_S:
            wrong = f"it ended {run.ended - run.cancelled:.1f} s after it was cancelled"
        if not wrong and run.unjustified() and not disk:
            wrong = f"ran again without need: {run.unjustified()}"
        late = [str(s.fault) for s in run.strikers if not s.fired]
        return wrong, f"{'answer DIFFERENT: ' + wrong if wrong else 'answer same'} | {run.summary()}", late


def child(a):
    answers, queries, modes = workload.Answers(a.scale), workload.all_queries(), nodes.MODES
    counts, end, runs, never = Counts(answers), time.monotonic() + a.seconds, 0, 0
    if a.mode:
        modes = [a.mode]
    if a.query and not a.fault:
        queries = {a.query: queries[a.query]}
    seed = a.seed
    while (runs < a.runs) if a.runs else time.monotonic() < end:
        if a.fault:
            mode, query, texts, replace, sink = modes[0], queries[a.query], a.fault, a.replace, a.sink
        else:
            mode, query, texts, replace, sink = choose(seed, counts, queries, modes)
        print(f"seed {seed}: {mode} {query.name} {' '.join(f'{k}={v}' for k, v in query.settings.items() if workload.WIDE.get(k) != v)} "
              f"{' '.join(texts)}{' replaced' if replace else ''}{' to files' if sink else ''}: ", end="", flush=True)
        try:
            wrong, text, late = one(answers, seed, mode, query, texts, replace, sink)
        except Exception as e:  # noqa: BLE001: shown, with how to replay
            wrong, text, late = repr(e), f"FAILED: {type(e).__name__}: {e}", []
            traceback.print_exc()
        print(text, flush=True)
        never += len(late)
        runs += 1
        if wrong and not a.keep_going:
            how = f"--seed {seed} --runs 1" + "".join(f" --fault {t}" for t in a.fault) + (f" --query {a.query}" if a.query else "")
            how += f" --mode {a.mode}" if a.mode else ""
            print(f"replay: tests/chaos/run.py {how}", flush=True)
            return 1
        seed += 0 if a.same else 1
    print(f"{runs} runs, {never} faults that never fired (their query went another way)", flush=True)
    return 0


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--runs", type=int, default=0, help="instead of --seconds")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--same", action="store_true", help="the same seed again and again")
    ap.add_argument("--keep-going", action="store_true")
    ap.add_argument("--scale", default="0.1")
    ap.add_argument("--mode")
    ap.add_argument("--query")
    ap.add_argument("--fault", action="append", default=[])
    ap.add_argument("--replace", action="store_true", help="with --fault: a worker joins for each one lost")
    ap.add_argument("--sink", action="store_true", help="with --fault: COPY … TO files")
    ap.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.child:
        return child(a)
    os.environ.setdefault("BRANT_LOG", "error")
    # In a process of its own: when the coordinator crashes, the line of its run is the last one.
    code = subprocess.run([sys.executable, __file__, "--child", *sys.argv[1:]]).returncode
    if code < 0:
        print(f"\nthe coordinator's process died of signal {-code} in the run above", flush=True)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
