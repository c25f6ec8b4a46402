# SPDX-License-Identifier: Apache-2.0
"""TPC-H at scale 0.1 through the command line, for a build with sanitizers (BRANT_BUILD_DIR): a process a query, so that what leaks in
coordinator, workers and executors is told by their ends. Needs no library preloaded into Python. scripts/test asan runs it and then
looks whether any process has written a report.
"""
import io
import os
import pathlib
import subprocess
import sys

import pyarrow as pa
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lib"))
import compare  # noqa: E402
import tpch  # noqa: E402

BRANT = pathlib.Path(os.environ.get("BRANT_BUILD_DIR", ROOT / "build")) / "brant"
SCALE = "0.1"
SETTINGS = {"default": [], "hash": ["broadcast_bytes=0", "sort_one_task_rows=0", "partitions=5", "shuffle_compression=lz4"]}
LIMIT_S = 120


@pytest.fixture(scope="module", autouse=True)
def data():
    tpch.make_data(SCALE)
    tpch.queries()
    tpch.make_answers(SCALE)


# Both ways to join, in turn: each query runs once.
@pytest.mark.parametrize("nr,name", [(n, sorted(SETTINGS)[n % 2]) for n in range(1, 23)])
def test_query(tmp_path, nr, name):
    text = tpch.queries()[nr]
    command = [BRANT, "sql", "--workers", "2", "--threads", "1", "--memory", "1GiB", "--distribute", "always", "--format", "arrow",
               "--no-progress", "--temp-dir", tmp_path]
    for s in SETTINGS[name]:
        command += ["--set", s]
    script = ";\n".join(tpch.views(SCALE) + [text])
    r = subprocess.run([str(c) for c in command], input=script.encode(), capture_output=True, timeout=LIMIT_S)
    assert r.returncode == 0, r.stderr.decode()
    assert b"Sanitizer" not in r.stderr and b"runtime error" not in r.stderr, r.stderr.decode()
    table = pa.ipc.open_stream(io.BytesIO(r.stdout)).read_all()
    want = compare.rows_of(tpch.answer(SCALE, nr))
    assert compare.difference(compare.rows_of(table), want, ordered="order by" in text.lower()) is None
    assert not list(tmp_path.iterdir()), "files are left over"
