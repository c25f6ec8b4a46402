# SPDX-License-Identifier: Apache-2.0
"""Examples with models, small: real weights, real texts and pages (deps/fetch.sh models)."""
import importlib
import os
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPS = pathlib.Path(os.environ.get("BRANT_DEPS_DIR", ROOT / "build" / "deps"))
READY = (DEPS / "models" / "minilm" / ".version").exists() and (DEPS / "models" / "developers-reference").exists()
if not os.environ.get("CI"):
    pytestmark = pytest.mark.skipif(not READY, reason="no models here: deps/fetch.sh models")


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    """The bare loop's processes import the example by its name; no session stays."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    yield
    import brant
    brant.shutdown()
    for name in ("embed", "orient_images"):
        sys.modules.pop(name, None)


def example(name):
    return importlib.import_module(name)


def test_embed(capsys, tmp_path):
    assert example("embed").main(["--texts", "80", "--dictionaries", "jargon", "--dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    print(out)
    assert "80 texts" in out and out.rstrip().endswith("right") and "models loaded: 2" in out
    import pyarrow.dataset as ds
    t = ds.dataset(str(tmp_path / "vectors-0"), format="parquet").to_table()
    assert t.num_rows == 80 and sorted(t["id"].to_pylist()) == list(range(80))
    assert all(len(v) == 384 and abs(sum(x * x for x in v) - 1) < 1e-4 for v in t["embedding"].to_pylist())


def test_embed_notices_wrong_vectors(capsys, tmp_path, monkeypatch):
    """The comparison with the bare loop can fail."""
    module = example("embed")
    monkeypatch.setattr(module, "bare", lambda texts, *a: (module.Encoder(*a[:1])(texts)[::-1], 1.0))
    assert module.main(["--texts", "20", "--dictionaries", "jargon", "--dir", str(tmp_path)]) == 1
    assert capsys.readouterr().out.rstrip().endswith("WRONG")


def test_dictionaries_are_read():
    module = example("embed")
    texts = module.read_texts(10_000, DEPS, ["foldoc"])
    assert len(set(texts)) == 10_000 and min(map(len, texts)) >= module.LEAST_LETTERS
    jargon = module.read_texts(2_000, DEPS, ["jargon"])
    assert any(t.startswith("core dump ") for t in jargon) and not any("{" in t for t in jargon)


def test_orient_images(capsys):
    assert example("orient_images").main(["--pages", "32"]) == 0
    out = capsys.readouterr().out
    print(out)
    right, n = map(int, re.search(r"right: (\d+) of (\d+)", out).groups())
    assert n == 32 and right >= 29
