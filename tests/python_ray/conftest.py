# SPDX-License-Identifier: Apache-2.0
"""Real Ray: three nodes (raylets) on this machine, one CPU each. Every process of a run has BRANT_TEST_MARK in its environment, raylets, actors and
workers too, so that what is left over is found. Each test ends within ALARM_S, the run within the step's limit (scripts/test)."""
import faulthandler
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tests/cluster", "tests/lib", "python"):
    sys.path.insert(0, str(ROOT / folder))
MARK = uuid.uuid4().hex
os.environ.update(  # before Ray starts: its nodes inherit it
    BRANT_TEST_MARK=MARK, BRANT_LIB_DIR=os.path.abspath(os.environ.get("BRANT_BUILD_DIR", ROOT / "build")), PYTHONPATH=str(ROOT / "python"),
    RAY_DEDUP_LOGS="0", RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
os.environ.pop("BRANT_SECRET", None)
os.environ.pop("RAY_ADDRESS", None)

import harness  # noqa: E402
from nodes import Nodes  # noqa: E402

ALARM_S, HARD_S = 120, 150


@pytest.fixture(autouse=True)
def bound():
    """A test that waits too long fails; one that doesn't hear that ends the run, with all stacks."""
    def late(*_):
        raise TimeoutError(f"not done within {ALARM_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(ALARM_S)
    faulthandler.dump_traceback_later(HARD_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def temp():
    """Short: sockets of Ray have long names."""
    path = tempfile.mkdtemp(prefix="brt-", dir="/tmp")
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def nodes(temp):
    n = Nodes(temp)
    try:
        for _ in range(3):
            n.add()
        yield n
    finally:
        n.close()
    harness.wait_for(lambda: not harness.marked(MARK), 20, "all processes of this run to end")


@pytest.fixture
def ray_session(nodes):
    """brant.init("ray"); afterwards none of its processes is there."""
    import brant
    nodes.complete()
    s = brant.init("ray", address=nodes.address, distribute="always", progress=False, settings={"sorted_scans": "false"})  # rows are to move
    try:
        yield s
    finally:
        s.close()
    nodes.wait_clean()
