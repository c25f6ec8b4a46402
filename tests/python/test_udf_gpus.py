# SPDX-License-Identifier: Apache-2.0
"""GPUs as a resource of functions: only their numbers count here, no device is needed."""
import os
import subprocess

import brant
import pytest
from test_udf import run


@brant.func(gpus=1)
def sees(x: int) -> str:
    import time
    time.sleep(0.02)
    return os.environ["CUDA_VISIBLE_DEVICES"]


@brant.func(gpus=2)
def wants_two(x: int) -> str:
    return os.environ["CUDA_VISIBLE_DEVICES"]


@brant.func(gpus=0.5, concurrency=8)
def half(x: int) -> str:
    import time
    time.sleep(0.02)
    return f"{os.environ['CUDA_VISIBLE_DEVICES']} {os.getpid()}"


@brant.func
def without(x: int) -> str:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")


ROWS = "into_partitions((select i from range(40) t(i)), 8)"


def test_each_process_has_its_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6,9")
    with brant.Session(workers=2, threads=1, distribute="always") as s:  # two of them each
        seen = run(s, f"select distinct {{0}}(i) d from {ROWS}", sees)["d"].to_pylist()
        assert len(seen) >= 2 and set(seen) <= {"3", "5", "6", "9"}
        two = run(s, f"select distinct {{0}}(i) d from {ROWS}", wants_two)["d"].to_pylist()  # the idle processes gave theirs back
        assert set(two) <= {"3,6", "5,9"} and two
        halves = [d.split() for d in run(s, f"select distinct {{0}}(i) d from {ROWS}", half)["d"].to_pylist()]
        assert all(sum(g == gpu for g, _ in halves) <= 2 for gpu, _ in halves)  # no more than fit


def test_one_worker_has_one_and_gets_the_tasks(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with brant.Session(workers=3, threads=1, distribute="always") as s:
        assert run(s, f"select distinct {{0}}(i) d from {ROWS}", sees)["d"].to_pylist() == ["7"]
        assert run(s, f"select distinct {{0}}(i) d from {ROWS}", without)["d"].to_pylist() == ["7"]  # what the user's shell says
        with pytest.raises(brant.errors.InvalidError, match="wants_two wants 2 GPUs a process, and no worker has more than 1"):
            run(s, f"select {{0}}(i) d from {ROWS}", wants_two)
        assert run(s, f"select distinct {{0}}(i) d from {ROWS}", sees)["d"].to_pylist() == ["7"]


def test_none_at_all(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with brant.Session(workers=1, threads=1, distribute="always") as s:
        with pytest.raises(brant.errors.InvalidError, match="no worker has more than 0"):
            run(s, "select {0}(i) d from range(3) t(i)", sees)


def test_options_of_workers():
    worker = os.path.join(os.environ["BRANT_LIB_DIR"], "brant-worker")
    for option, value in (("--gpus", "many"), ("--gpu-share", "2/2"), ("--gpu-share", "1")):
        r = subprocess.run([worker, "--join", "localhost:1", option, value], capture_output=True, text=True, timeout=20)
        assert r.returncode == 2 and option in r.stderr, r.stderr
