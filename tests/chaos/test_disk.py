# SPDX-License-Identifier: Apache-2.0
"""Disks that are full, slow, or fail: the answer is right, or one clear error says why; never other rows."""
import os

import pytest
import workload
from shim import Shim
from small_disk import Disk, mounted

QUERIES = workload.all_queries()
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")


@pytest.fixture
def disks(box):
    """disks(bytes, worker numbers): {number: directory on a file system of its own}"""
    made = []

    def make(size, numbers):
        for n in numbers:
            made.append(Disk(box.dir / f"disk{n}", size))
        return {n: d.path for n, d in zip(numbers, made)}

    yield make
    for d in made:
        d.remove()
    assert not mounted(box.dir)


@needs_root
@pytest.mark.parametrize("when", [pytest.param("task_done#2", marks=pytest.mark.short), "task_started#1", "task_done#4", "stage_done#1"])
def test_one_disk_gets_full(make_cluster, check, disks, mode, when):
    check(make_cluster(mode=mode, temps=disks(32 << 20, [2])), "spill", f"fill-disk:w2@{when}", justify=False)


@needs_root
def test_all_disks_are_too_small(make_cluster, check, disks, mode):
    """An error that says so; the cluster is as good as before."""
    c = make_cluster(mode=mode, temps=disks(8 << 20, [1, 2, 3, 4]))
    run = check(c, "spill", allow={"NO_SPACE", "OUT_OF_MEMORY"}, close=False, justify=False)
    assert run.error and "space" in run.error.message.lower(), run.error
    check(c, "group")


@pytest.mark.parametrize("do, nth", [("eio", 1), ("eio", 0), ("enospc", 1), ("enospc", 0)])
def test_writing_fails_on_one_worker(make_cluster, check, box, do, nth):
    """One write (nth 1), or all of them (0): what can't be written there is made elsewhere."""
    shim = Shim(box.dir)
    c = make_cluster(env={2: shim.env("write", "/shuffle/", do, nth)})
    check(c, "spill", justify=False)
    assert shim.fired(), "the fault never fired"


@pytest.mark.short
def test_slow_disk(make_cluster, check, box, mode):
    shim = Shim(box.dir)
    c = make_cluster(mode=mode, env={2: shim.env("write", "/shuffle/", "delay:20000", 0)})
    check(c, "spill", justify=False)
    assert shim.fired(), "the fault never fired"
