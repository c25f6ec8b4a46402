# SPDX-License-Identifier: Apache-2.0
"""Files below directories that others are emptying at this moment: what goes meanwhile is left out. (pathlib's glob raises when a directory
that it has just seen is gone.)"""
import glob
import pathlib


def found(root, pattern):
    """Paths that match a pattern of pathlib's kind ("*/shuffle/*", "**/*.map"), in order."""
    root = pathlib.Path(root)
    return sorted(root / p for p in glob.glob(pattern, root_dir=root, recursive=True, include_hidden=True) if p)


def sizes(root, pattern):
    """{path: bytes} of the files among them."""
    there = {}
    for p in found(root, pattern):
        try:
            if p.is_file():
                there[p] = p.stat().st_size
        except FileNotFoundError:
            pass
    return there
