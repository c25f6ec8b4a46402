# SPDX-License-Identifier: Apache-2.0
"""What scripts/wheel-check runs in the venv of the installed wheel: the package as a user has it."""
import os
import sys

import brant

tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
assert not os.path.abspath(brant.__file__).startswith(tree), f"{brant.__file__} is of the tree, not of the wheel"
with brant.Session(workers=2, threads=1, memory=1 << 30, distribute="always") as s:
    result = s.execute("select i % 3 as k, count(*) as n from range(100000) t(i) group by all order by k")
    assert result.arrow().to_pydict() == {"k": [0, 1, 2], "n": [33334, 33333, 33333]}
    assert result.stats()["distributed"] == 1
try:
    brant.Session(memory=1)
except brant.Error as e:
    assert e.code == "INVALID", e.code
else:
    sys.exit("a session with one byte of memory was opened")
