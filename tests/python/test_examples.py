# SPDX-License-Identifier: Apache-2.0
"""The scripts under examples/, each with a small input."""
import importlib.util
import os
import pathlib
import random
import subprocess
import sys

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
    edges = [(i, i + 1) for i in range(0, 60)] + [(100 + i, 100) for i in range(1, 20)]
    edges += [(draw.randrange(200, 300), draw.randrange(200, 300)) for _ in range(60)]
    edges = sorted({(min(e), max(e)) for e in edges if e[0] != e[1]})
    table = pa.table({"a": pa.array([a for a, _ in edges], pa.int64()), "b": pa.array([b for _, b in edges], pa.int64())})
    pq.write_table(table, tmp_path / "pairs.parquet")
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


def test_repartition(capsys):
    assert example("repartition").main(["--gb", "0.05", "--partitions", "64", "--memory", "256"]) == 0
    out = capsys.readouterr().out
    assert "64 partitions by key, 2 workers of 256 MB" in out and "64 partitions with rows: the same rows, each key in one partition" in out


def test_repartition_sees_rows_that_are_lost_and_keys_that_are_split(session, tmp_path):
    module = example("repartition")
    files = module.make(session, tmp_path, 0.002)
    want = module.before(session, files)
    whole = module.after(session, files, 7)[0]
    assert all(whole[k] == want[k] for k in want) and whole["groups"] == whole["keys"] == want["keys"] and whole["parts"] == 7
    fewer = module.after(session, f"(SELECT * FROM {files} WHERE id <> 5)", 7)[0]
    assert fewer["n"] == want["n"] - 1 and fewer["hashes"] != want["hashes"]
    split = module.after(session, files, 7, "id")[0]
    assert split["n"] == want["n"] and split["keys"] == want["keys"] and split["groups"] > 5 * want["keys"]


def archive(path):
    """English pages, others, short ones, one whose bytes are no UTF-8, and one damaged member."""
    import gzip
    english = "The quick brown fox and the lazy dog are in the house that was for sale by the river. " * 10
    texts = [english] * 20
    texts += ["Der Hund und die Katze gehen in den Wald hinein. " * 10] * 5 + ["the short page"] * 5
    pages = [f"<html><head><title>x</title></head><body><script>var a = 1;</script><p>{t}</p>&amp;</body></html>".encode() for t in texts]
    pages.append(b"<p>\xff\xfe</p>")
    members = []
    for i, page in enumerate(pages):
        body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + page
        members.append(gzip.compress((f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <{i}>\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
                                      f"WARC-Target-URI: http://example.org/{i}\r\nContent-Type: application/http; msgtype=response\r\n"
                                      f"Content-Length: {len(body)}\r\n\r\n").encode() + body + b"\r\n\r\n"))
    damaged = bytearray(members[0])
    damaged[len(damaged) // 2] ^= 0xFF
    path.write_bytes(b"".join(members[:10]) + bytes(damaged) + b"".join(members[10:]))


def test_warc_to_text(session, tmp_path):
    pytest.importorskip("lxml"), pytest.importorskip("py3langid")  # deps/requirements-test.txt has them
    archive(tmp_path / "a.warc.gz")
    module = example("warc_to_text")
    files = str(tmp_path / "*.warc.gz")
    kept, words, left = module.run(session, files, tmp_path / "text")
    assert kept == 20 and words == 20 * (19 * 10 + 1)
    assert (left["pages"], left["long"], left["one language"], left["sentences"], left["language en"]) == (31, 25, 25, 25, 20)
    rows = session.execute(f"SELECT * FROM '{tmp_path}/text/*.parquet' ORDER BY url").arrow().to_pylist()
    assert {r["language"] for r in rows} == {"en"} and all(r["score"] > 0.9 for r in rows)
    text = rows[0]["text"]
    assert text.startswith("The quick brown fox") and "var a" not in text and "<" not in text and text.endswith("\n&")
    german = module.run(session, files, tmp_path / "german", "de")
    assert german[0] == 5


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "examples").glob("*.py")))
def test_an_example_finds_the_build_tree(name):
    """From anywhere, with nothing installed and nothing said of where brant is."""
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "BRANT_LIB_DIR")}
    code = (f"import importlib.util, os, sys; spec = importlib.util.spec_from_file_location('e', {str(ROOT / 'examples' / (name + '.py'))!r}); "
            "m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m); assert importlib.util.find_spec('brant'), sys.path; "
            f"assert os.environ['BRANT_LIB_DIR'] == {str(ROOT / 'build')!r}")
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/", env=environ)
