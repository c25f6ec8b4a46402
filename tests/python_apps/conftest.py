# SPDX-License-Identifier: Apache-2.0
"""What brant is used from: a notebook's kernel, torch's loaders. In a venv of its own (deps/fetch.sh apps)."""
import faulthandler
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
os.environ.update(BRANT_LIB_DIR=os.path.abspath(os.environ.get("BRANT_BUILD_DIR", ROOT / "build")), PYTHONPATH=str(ROOT / "python"))
HARD_S = 120


@pytest.fixture(autouse=True)
def bound():
    """What hangs ends the run, with all stacks."""
    faulthandler.dump_traceback_later(HARD_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
