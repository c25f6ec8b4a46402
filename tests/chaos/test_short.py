# SPDX-License-Identifier: Apache-2.0
"""Each kind of fault once, at a place where it hurts."""
import pytest

CASES = [
    # query, faults
    ("q9", ["kill-worker:actor@task_done#12"]),
    ("window", ["kill-worker:owner@stage_done#1"]),
    ("chain", ["kill-executor:actor@task_started.s2#2"]),
    ("sort", ["kill-worker:w2@bytes#150000"]),
    ("join", ["flip:w1@bytes#300000"]),
    ("group", ["reset:w3@bytes#200000"]),
    ("outer", ["close:w2@bytes#200000"]),
]


@pytest.mark.parametrize("name, texts", CASES, ids=[f"{c[0]}-{c[1][0].partition('#')[0]}" for c in CASES])
def test_fault(make_cluster, check, mode, name, texts):
    relays = any(t.split(":")[0] in ("flip", "reset", "close", "refuse", "silent", "delay") or "@bytes" in t for t in texts)
    check(make_cluster(mode=mode, relays=relays), name, *texts)
