# SPDX-License-Identifier: Apache-2.0
"""Tests of whole clusters with real processes: bad input, garbage on ports, kills, memory, networks."""
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "lib"))
import harness  # noqa: E402
import tpch  # noqa: E402


@pytest.fixture
def box(tmp_path):
    b = harness.Box(tmp_path)
    yield b
    b.close()


@pytest.fixture(scope="session")
def small():
    """Folder of TPC-H at scale 0.1: 600,572 lines."""
    return tpch.make_data("0.1")


@pytest.fixture(scope="session")
def big():
    """Folder of TPC-H at scale 1: 6,001,215 lines."""
    return tpch.make_data("1")
