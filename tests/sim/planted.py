#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants each bug of tests/sim/planted/*.patch into a copy of the scheduler and asserts that the simulation catches it.

Usage: planted.py [--seeds N] [--jobs N] [PATCH...]

A patch is a unified diff against src/schedule; the text before its first header says what the bug is. Context lines are few, and
line numbers don't matter; one that no longer applies is a failure: write it anew against the code as it is. The scheduler's own checks are
left out, so that the model alone (events and actions) must see the bug. Printed: how many seeds it took and what was seen first.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests/sim/planted"
SCHEDULE = Path(os.environ.get("BRANT_SCHEDULE_DIR", ROOT / "src/schedule"))  # of a tree whose src/base and tests/sim fit
RUN_S = 100  # for the seeds of one bug
FLAGS = ["-std=gnu17", "-O2", "-D_GNU_SOURCE"]


def compiler():
    cc = os.environ.get("CC", "cc").split()
    return (["ccache"] if shutil.which("ccache") else []) + cc


def compile_all(sources, include, into):
    """Objects of the sources, in the folder `into`."""
    into.mkdir(parents=True, exist_ok=True)
    objects = []
    for source in sources:
        objects.append(into / (source.stem + ".o"))
        done = subprocess.run(
            compiler() + FLAGS + [f"-I{i}" for i in include] + ["-c", str(source), "-o", str(objects[-1])],
            capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{source.name} does not compile:\n{done.stderr}")
    return objects


def link(objects, program):
    subprocess.run([*compiler()[-1:], "-o", str(program), *map(str, objects), "-lxxhash"], check=True)


def describe(patch):
    text = patch.read_text().split("\n--- ")[0]
    return " ".join(text.split())


def compile_changed(home, work):
    """Objects of the copy: only what differs is compiled, all of it when a header does."""
    changed = [f for f in sorted((home / "src/schedule").glob("*.[ch]")) if f.read_bytes() != (SCHEDULE / f.name).read_bytes()]
    sources = sorted((home / "src/schedule").glob("*.c"))
    again = sources if any(f.suffix == ".h" for f in changed) else [f for f in sources if f in changed]
    own = compile_all(again, [home / "src", ROOT / "src"], home / "o")
    return own + [work / "schedule" / (f.stem + ".o") for f in sources if f not in again]


def try_patch(patch, work, common, seeds):
    """(caught, line to print)"""
    home = work / patch.stem
    shutil.copytree(SCHEDULE, home / "src/schedule")
    applied = subprocess.run(["patch", "-p1", "-s", "-f", "--no-backup-if-mismatch", "--fuzz=2", "-d", str(home), "-i", str(patch)],
                             capture_output=True, text=True, check=False)
    if applied.returncode:
        return False, "DOES NOT APPLY any more, write it anew:\n" + applied.stdout + applied.stderr
    program = home / "sim"
    try:
        own = compile_changed(home, work)
    except RuntimeError as e:
        return False, f"DOES NOT COMPILE: {e}"
    link(own + common, program)
    try:
        run = subprocess.run([str(program), str(seeds), "1", "bad=1", "model-alone"],
                             capture_output=True, text=True, timeout=RUN_S, check=False)
    except subprocess.TimeoutExpired:
        return False, f"NOT CAUGHT within {RUN_S} s"
    seen = re.search(r"seed (\d+) (?:failed: )?(.*)", run.stdout)
    if seen:
        return True, f"seed {seen[1]}: {seen[2]}"
    return False, f"NOT CAUGHT by {seeds} seeds"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seeds", type=int, default=10000)
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("patches", nargs="*", type=Path)
    a = p.parse_args()
    if not shutil.which("patch"):
        sys.exit("planted.py needs the program patch: install it")
    patches = a.patches or sorted(FOLDER.glob("*.patch"))
    missed = 0
    with tempfile.TemporaryDirectory(prefix="brant-planted-") as t:
        work = Path(t)
        sim = sorted((ROOT / "tests/sim").glob("sim_*.c"))
        base = sorted((ROOT / "src/base").glob("*.c"))
        compile_all(sorted(SCHEDULE.glob("*.c")), [ROOT / "src"], work / "schedule")
        common = compile_all(sim + base, [ROOT / "src", ROOT / "tests"], work / "common")
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            found = pool.map(lambda f: try_patch(f.resolve(), work, common, a.seeds), patches)
            for patch, (caught, line) in zip(patches, found):
                missed += not caught
                print(f"{'caught' if caught else 'FAILED'} {patch.stem}: {describe(patch)}\n       {line}", flush=True)
    print(f"{len(patches) - missed} of {len(patches)} planted bugs are caught within {a.seeds} seeds")
    return 1 if missed or not patches else 0


if __name__ == "__main__":
    sys.exit(main())
