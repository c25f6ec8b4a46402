# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("BRANT_LIB_DIR", os.environ.get("BRANT_BUILD_DIR", str(ROOT / "build")))
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "tests" / "lib"))


@pytest.fixture(scope="session")
def session():
    """Two workers, everything through stages."""
    import brant
    with brant.Session(workers=2, threads=1, memory=1 << 30, distribute="always") as s:
        yield s
