# SPDX-License-Identifier: Apache-2.0
"""Each kind of fault once, at a place where it hurts: CI's set."""
import faults
import pytest

pytestmark = pytest.mark.short

CASES = [
    ("q9", ["kill-worker:actor@task_done#40"]),
    ("window", ["kill-worker:owner@stage_done#1", "join-worker:other@task_done#12"]),
    ("chain", ["kill-executor:actor@task_started.s2#2"]),
    ("q18", ["term-worker:owner@task_done#20"]),
    ("q21", ["term-worker:owner@stage_done#3", "kill-worker:other@task_done#70"]),
    ("union", ["stop-worker:actor@task_started#10"]),
    ("q3", ["pause-worker:owner@stage_done#2"]),
    ("sort", ["kill-worker:w2@bytes#150000"]),
    ("join", ["flip:w1@bytes#300000"]),
    ("group", ["reset:w3@bytes#200000"]),
    ("outer", ["close:w2@bytes#200000"]),
    ("distinct", ["refuse:owner@stage_done#1"]),
    ("q5", ["delay:other@task_started#20"]),
    ("map", ["kill-worker:owner@task_done#7"]),
    ("q13", ["kill-worker:owner@stage_retired#1"]),
    ("q7", ["kill-worker:owner@stage_retired#5"]),
]


@pytest.mark.parametrize("name, texts", CASES, ids=[f"{c[0]}-{c[1][0].partition('#')[0]}" for c in CASES])
def test_fault(make_cluster, check, mode, name, texts):
    relays = any(faults.Fault.parse(t).needs_relay() for t in texts)
    check(make_cluster(mode=mode, relays=relays, settings={"worker_silent_ms": "2500", "probe_ms": "1000"}), name, *texts)
