# SPDX-License-Identifier: Apache-2.0
"""Distributed answers against one-process DuckDB, over real files, on at least three workers."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import brantlib  # noqa: E402


@pytest.fixture(scope="session")
def workers():
    """One session for the whole run: three workers of one thread, everything distributed."""
    with brantlib.Session(workers=3, threads=1, distribute="always") as s:
        yield s
