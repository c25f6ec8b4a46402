# SPDX-License-Identifier: Apache-2.0
"""Frames in other processes: forked ones, as DataLoader workers and multiprocessing make them, and others that get a frame pickled. Each case
is a process of its own, since a fork takes along whatever the test's process has."""
import copy
import os
import pickle
import subprocess
import sys
import time

import brant
import pyarrow as pa
import pytest
from brant import col

LIMIT_S = 60

BEFORE = """
import multiprocessing
import os
import sys
import brant
from brant import col

def total(df):
    return df.agg(col("i").sum().cast("BIGINT")).item()

class Answer:
    def __init__(self, work):
        self.got, give = multiprocessing.Pipe(False)
        self.process = multiprocessing.get_context("fork").Process(target=self.run, args=(work, give))
        self.process.start()
        give.close()
    def run(self, work, give):
        try:
            give.send(work())
        except Exception as e:
            give.send(f"{type(e).__name__}: {e}")
    def get(self):
        out = self.got.recv()
        self.process.join(30)
        assert self.process.exitcode == 0, self.process.exitcode
        return out
"""

FORKED = BEFORE + """
df = brant.range(1000).select(i="id")
kept = brant.range(10).select(i="id").collect()
given = brant.from_pydict({"i": list(range(5000))})                     # a dataset: too long for the text
print(total(df), total(kept), total(given))
print(Answer(lambda: (total(df), total(kept), total(given))).get())     # in a session of the child's own
pool = multiprocessing.get_context("fork").Pool(2)
print(pool.map(total, [df, kept, given]))
pool.close(); pool.join()
print(total(df), total(kept), total(given))                             # the parent's goes on
"""

OWN = BEFORE + """
s = brant.Session(workers=1, distribute="always")
df = brant.range(1000, session=s).select(i="id")
print(total(df))
result = s.execute("select 1 as i")
def in_child():
    out = []
    for call in (lambda: total(df), lambda: s.set("partitions", 2), lambda: result.arrow(), lambda: result.stats(), lambda: s.explain("select 1")):
        try:
            out.append(call())
        except brant.Error as e:
            out.append(str(os.getppid()) in str(e) and "forked" in str(e))
    result.cancel()
    s.close()                     # ends nothing of the parent's
    return out
print(Answer(in_child).get())
pid = os.fork()
if pid == 0:
    sys.exit(0)                   # through the whole end of the interpreter
print(os.waitpid(pid, 0)[1], total(df), result.arrow().num_rows)
s.close()
"""


def run(code, tmp_path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TMPDIR": str(tmp_path)}
    (tmp_path / "main.py").write_text(code)
    r = subprocess.run([sys.executable, str(tmp_path / "main.py")], capture_output=True, text=True, timeout=LIMIT_S, env=env)
    assert r.returncode == 0, r.stderr
    (tmp_path / "main.py").unlink()
    return r.stdout.splitlines()


def nothing_left(tmp_path):
    end = time.monotonic() + 20
    while os.listdir(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert os.listdir(tmp_path) == []


def test_frames_work_in_forked_processes(tmp_path):
    sums = (499500, 45, 12497500)
    got = run(FORKED, tmp_path)
    assert got == [" ".join(map(str, sums)), str(sums), str(list(sums)), " ".join(map(str, sums))]
    nothing_left(tmp_path)


def test_a_session_of_the_parent_is_refused_and_lives_on(tmp_path):
    assert run(OWN, tmp_path) == ["499500", str([True] * 5), "0 499500 1"]
    nothing_left(tmp_path)


@brant.func
def plus(x: int) -> int:
    return x + 1


def test_pickled_frames_are_queries(session):
    brant.session._default, before = session, brant.session._default
    try:
        table = pa.table({"k": [1, 2, 3], "v": ["a", None, "c"]})
        given = brant.from_arrow(table)
        long = brant.from_pydict({"k": list(range(3000))})
        for df in (given, given.join(long, on="k").sort("k"), given.select(n=plus(col("k"))).sort("n"), given.collect().where("k > 1").sort("k"),
                   brant.sql("select k, count(*) as n from long group by k order by k limit 3"), given.concat(given).sort("k", "v"),
                   given.group_by("k").agg(n=brant.functions.count()).sort("k")):
            again = pickle.loads(pickle.dumps(df))
            assert again.to_arrow().equals(df.to_arrow()) and again.columns == df.columns
            assert copy.deepcopy(df).to_arrow().equals(df.to_arrow())
    finally:
        brant.session._default = before


def test_a_pickled_frame_in_a_process_that_knows_nothing(session, tmp_path):
    (tmp_path / "df").write_bytes(pickle.dumps(brant.from_pydict({"i": list(range(2500))}, session=session).where(col("i") % 2 == 0)))
    out = run(f"import pickle\nprint(pickle.load(open({str(tmp_path / 'df')!r}, 'rb')).count_rows())", tmp_path)
    assert out == ["1250"]


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_copies_keep_their_session(session, make):
    df = brant.range(3, session=session)
    assert make(df).session is session
