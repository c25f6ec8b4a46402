#!python
# SPDX-License-Identifier: Apache-2.0
"""The command `brant` of an installed wheel: becomes the program in the package's folder. It doesn't import the package (no time lost)."""
import importlib.util
import os
import sys

spec = importlib.util.find_spec("brant")
if spec is None or not spec.origin:
    sys.exit("brant: the Python package brant is not installed for " + sys.executable)
program = os.path.join(os.path.dirname(spec.origin), "brant")
try:
    os.execv(program, ["brant", *sys.argv[1:]])
except OSError as e:
    sys.exit(f"brant: cannot run {program}: {e.strerror}")
