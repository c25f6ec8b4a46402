# SPDX-License-Identifier: Apache-2.0
"""Generated queries, distributed, against one-process DuckDB.

`python tests/sql/generate/run.py 1000` runs seeds 0 … 999, `… 5000:9000` others; `--one SEED` shows one. A seed is a query and its
configuration: partitions 1, 2, 7 or 64, staged or eager, all eight in turn; with and without broadcast, two-step aggregates, sorts by
ranges, small splits, passes, by chance. `--each` runs a seed's query in all eight. Failures
are shrunk and printed with their seeds. What differs between two runs of DuckDB itself, over the same rows in another order, has no single
answer and is left out; so is what takes DuckDB more than judge.LIMIT_S.
"""
import argparse
import collections
import dataclasses
import pathlib
import random
import re
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "lib"), str(pathlib.Path(__file__).resolve().parent)]
import brantlib  # noqa: E402
import compare  # noqa: E402
import grammar  # noqa: E402
import judge  # noqa: E402
import shrink  # noqa: E402
import tables  # noqa: E402

SEEDS_PER_DATA = 5000  # seeds that share their tables
# what depends on which rows an expression is computed for, and so on the plan
DATA_ERRORS = ("Conversion Error", "Out of Range Error", "Invalid Input Error")
CANT = "Unimplemented type for mark join"  # what DuckDB's operators can't and ours can: intervals in ANY and ALL

PARTITIONS = (1, 2, 7, 64)


def settings_of(seed):
    r = random.Random(seed * 7919 + 1)
    partitions = PARTITIONS[seed % 4]
    passes = r.choices([0, 3], [5, 1])[0] if partitions < 64 else 0  # they multiply
    return {"partitions": partitions, "task_passes": passes, "broadcast_bytes": r.choice(["0", "0", "32MiB"]), "split_bytes": r.choice([0, 0, 20000]),
            "sort_one_task_rows": r.choice([0, 0, 1000000]), "two_step_aggregate": r.choice(["true", "true", "false"]),
            "filter_bytes": r.choice(["0", "32MiB"]), "shuffle_compression": r.choice(["none", "none", "lz4", "zstd"]),
            "inline_bytes": r.choice(["0", "1KiB"]), "bloom_keys": 0, "bloom_bytes": r.choice(["0", "16MiB"])}


def mode_of(seed):
    return "eager" if seed // 4 % 2 else "staged"


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return compare.same_value(a, b) or abs(a - b) <= 1e-6 * max(1.0, abs(a), abs(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return compare.same_value(a, b)


def difference(got, want, ordered):
    if got.names != want.names:
        return f"columns {got.names} instead of {want.names}"
    if got.types != want.types:
        return f"types {got.types} instead of {want.types}"
    if len(got.rows) != len(want.rows):
        return f"{len(got.rows)} rows instead of {len(want.rows)}"
    if ordered:
        return next((f"row {i}: {g!r} instead of {w!r}" for i, (g, w) in enumerate(zip(got.rows, want.rows)) if not all(map(same, g, w))), None)
    # exact columns first, so that the last digits of floats decide last
    order = sorted(range(len(got.names)), key=lambda i: want.types[i].startswith(("DOUBLE", "FLOAT")))
    rows = [sorted(([r[i] for i in order] for r in x), key=compare._sort_key) for x in compare.unmatched(got.rows, want.rows)]
    wrong = [(g, w) for g, w in zip(*rows) if not all(map(same, g, w))]
    left = [w for _, w in wrong]
    for g, _ in wrong:
        hit = next((i for i, w in enumerate(left) if all(map(same, g, w))), None)
        if hit is None:
            near = min(left, key=lambda w: sum(not same(a, b) for a, b in zip(g, w)))
            return f"{len(wrong)} rows differ: {g!r} instead of {near!r}"
        left.pop(hit)
    return None


@dataclasses.dataclass
class Outcome:
    kind: str  # same, both fail, slow, undetermined, uneven error, or of a failure: its signature
    text: str = ""
    failed: bool = False


class Runner:
    def __init__(self, data):
        self.folder = tables.make(data)
        self.judge = judge.Judge(self.folder)
        self.mode, self.session, self.known = None, None, {}

    def close(self):
        if self.session is not None:
            self.session.close()
        self.session, self.mode, self.known = None, None, {}
        self.judge.close()

    def configure(self, seed, mode=None, partitions=None):
        mode = mode or mode_of(seed)
        if mode != self.mode:
            if self.session is not None:
                self.session.close()
            self.known = {}
            self.session = brantlib.Session(workers=3, threads=1, distribute="always", mode=mode, settings={"TimeZone": "UTC", "timeout_ms": 60000},
                memory=1 << 30)
            self.mode = mode
            for v in [*tables.views(self.folder), tables.attached(self.folder)]:
                self.session.run(v)
        settings = settings_of(seed)
        if partitions is not None:
            settings.update(partitions=partitions, task_passes=0 if partitions == 64 else settings["task_passes"])
        for k, v in settings.items():
            if self.known.get(k) != v:
                self.session.set(k, v)
                self.known[k] = v

    def brant(self, sql):
        try:
            table, stats = self.session.run(sql)
            self.stages = stats.stages
            return self.judge.read(table), None
        except brantlib.BrantError as e:
            return None, f"{e.code}: {e.message}"
        except Exception as e:  # noqa: BLE001: a result that DuckDB can't read
            return None, f"result: {type(e).__name__}: {e}"

    def check(self, sql, ordered):
        want, error = self.judge.answer(sql)
        if want is None and error is None:
            return Outcome("slow")
        got, mine = self.brant(sql)
        if got is None and want is None:
            return Outcome("both fail", error)
        if got is not None and want is not None:
            diff = difference(got, want, ordered)
            if diff is None:
                return Outcome("same")
        again, error_again = self.judge.answer(sql, shuffled=True)
        if want is None:
            known = error.startswith(DATA_ERRORS) or CANT in error
            return Outcome("uneven error", error) if known else Outcome("only DuckDB fails", error, True)
        if again is None or difference(again, want, ordered) is not None:
            return Outcome("undetermined", error_again or "")
        if got is None:
            return Outcome(re.sub(r"\d+", "N", "only brant fails: " + mine[:90]), mine, True)
        return Outcome("answers differ", diff, True)

    def smaller(self, sql, outcome):
        def fails(text):
            try:
                return self.check(text, False).kind == outcome.kind
            except Exception:  # noqa: BLE001: not a statement
                return False
        return shrink.shrink(self.judge.reader.con, sql, fails)

    def seed(self, seed, mode=None, partitions=None):
        self.configure(seed, mode, partitions)
        q = grammar.query(seed)
        return q, self.check(q.sql, q.ordered)


def describe(seed, runner, sql, outcome, small=None):
    settings = " ".join(f"{k}={v}" for k, v in runner.known.items())
    lines = [f"seed {seed}: {outcome.kind}: {outcome.text[:600]}", f"  {runner.mode} {settings}", f"  data: {runner.folder.name}"]
    lines.append(f"  small: {small}" if small else f"  query: {sql}")
    return "\n".join(lines)


def configurations(first, end, each):
    """(seed, mode, partitions), mode by mode, so that sessions are kept."""
    if not each:
        return sorted(((s, mode_of(s), None) for s in range(first, end)), key=lambda c: (c[0] // SEEDS_PER_DATA, c[1], c[0]))
    return [(s, m, p) for m in ("eager", "staged") for s in range(first, end) for p in PARTITIONS]


def run(first, end, shrunk=True, each=False, say=print):
    """(counts by kind, texts of failures)"""
    counts, failures, runner, data = collections.Counter(), [], None, None
    order = configurations(first, end, each)
    begin = time.monotonic()
    for done, (seed, mode, partitions) in enumerate(order, 1):
        if seed // SEEDS_PER_DATA != data:
            if runner is not None:
                runner.close()
            data = seed // SEEDS_PER_DATA
            runner = Runner(data)
        q, outcome = runner.seed(seed, mode, partitions)
        counts[outcome.kind] += 1
        if outcome.failed:
            small = runner.smaller(q.sql, outcome) if shrunk and counts[outcome.kind] <= 12 else None
            failures.append(describe(seed, runner, q.sql, outcome, small))
            say(failures[-1], flush=True)
        if done % 500 == 0:
            say(f"{done} of {len(order)}, {time.monotonic() - begin:.0f} s: {dict(counts)}", flush=True)
    if runner is not None:
        runner.close()
    return counts, failures


def main():
    p = argparse.ArgumentParser()
    p.add_argument("seeds", nargs="?", default="1000")
    p.add_argument("--one", type=int, help="show one seed: text, configuration, outcome")
    p.add_argument("--no-shrink", action="store_true")
    p.add_argument("--each", action="store_true", help="each seed in every mode with every number of partitions")
    a = p.parse_args()
    if a.one is not None:
        runner = Runner(a.one // SEEDS_PER_DATA)
        q, outcome = runner.seed(a.one)
        print(describe(a.one, runner, q.sql, outcome))
        if outcome.failed:
            print("  small:", runner.smaller(q.sql, outcome))
        runner.close()
        return 0
    first, _, end = a.seeds.rpartition(":")
    counts, failures = run(int(first or 0), int(end), not a.no_shrink, a.each)
    for kind, n in counts.most_common():
        print(f"{n:7} {kind}")
    print(f"{sum(counts.values()) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
