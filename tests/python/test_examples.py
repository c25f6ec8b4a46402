# SPDX-License-Identifier: Apache-2.0
"""The scripts under examples/, each with a small input."""
import importlib.util
import pathlib
import random

import pytest

pytest.importorskip("pyarrow")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_dedup(capsys, tmp_path):
    assert example("dedup").main(["--documents", "2000", "--dir", str(tmp_path / "d")]) == 0
    out = capsys.readouterr().out
    assert "2000 documents" in out and "precision 1.0000" in out
    assert list((tmp_path / "d" / "kept").glob("*.parquet"))


def test_dedup_components_are_those_of_the_graph(session, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    draw = random.Random(3)
    edges = [(i, i + 1) for i in range(0, 60)] + [(100 + i, 100) for i in range(1, 20)] + [(draw.randrange(200, 300), draw.randrange(200, 300)) for _ in range(60)]
    edges = sorted({(min(e), max(e)) for e in edges if e[0] != e[1]})
    pq.write_table(pa.table({"a": pa.array([a for a, _ in edges], pa.int64()), "b": pa.array([b for _, b in edges], pa.int64())}), tmp_path / "pairs.parquet")
    want = {}
    for a, b in edges:
        want.setdefault(a, a), want.setdefault(b, b)
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            least = min(want[a], want[b])
            changed |= want[a] != least or want[b] != least
            want[a] = want[b] = least
    labels = example("dedup").components(session, f"'{tmp_path}/pairs.parquet'", tmp_path)
    got = session.execute(f"SELECT id, label FROM {labels}").arrow().to_pylist()
    assert {r["id"]: r["label"] for r in got} == want and len(got) == len(want)
