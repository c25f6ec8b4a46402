# SPDX-License-Identifier: Apache-2.0
"""The progress while a result is read: seen on a terminal, nowhere else (notebooks: tests/python_apps); and brant.init."""
import io
import os
import pty
import subprocess
import sys
import threading
import types

import brant
import pytest
from brant import progress

SLOW = "select count(*) as n from range(60000000) a(i) join range(3) b(j) on a.i % 7 <> b.j"
STATS = {"tasks": 8, "tasks_done": 2, "tasks_running": 1, "stages": 3, "stages_done": 1, "rows_read": 12345, "bytes_shuffled": 4_500_000,
         "seconds": 2.0, "text": "stage 2 of 3: join"}

CHILD = """
import sys
import threading
sys.path.insert(0, {path!r})
import brant
from brant import progress
progress.FIRST_S = 0.0  # however fast the machine is
with brant.Session(workers=1, threads=1, memory=1 << 30, distribute="always", progress={progress}) as s:
    print(s.execute({sql!r}).arrow().num_rows)
"""


def _run(wanted, terminal):
    """(standard output, standard error) of a process that runs a slow query."""
    code = CHILD.format(path=os.path.dirname(os.path.dirname(progress.__file__)), progress=wanted, sql=SLOW)
    if not terminal:
        r = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
        assert r.returncode == 0, r.stderr
        return r.stdout, r.stderr
    ours, theirs = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    out = child.communicate(timeout=120)[0]
    assert child.returncode == 0, seen
    return out, seen


def test_on_a_terminal_a_line_is_drawn_and_wiped():
    out, seen = _run(None, True)
    assert out.strip() == b"1"
    assert "░".encode() in seen and b"tasks" in seen, seen
    assert seen.endswith(b"\r\x1b[K")


@pytest.mark.parametrize("wanted, terminal", [(None, False), (False, True)])
def test_nothing_in_pipes_or_when_unwanted(wanted, terminal):
    assert _run(wanted, terminal) == (b"1\n", b"")


def test_it_can_be_asked_for_in_a_pipe():
    assert b"tasks" in _run(True, False)[1]


def test_words():
    part, words = progress.describe(STATS)
    assert part == 0.25
    assert words == "2.0s, stages 1/3, tasks 2/8 (1 run), 12.3k rows read, 4.5MB moved, stage 2 of 3: join"
    assert [progress.short(n) for n in (0, 999, 1000, 2_500_000, 7e12, 7e15)] == ["0", "999", "1.0k", "2.5M", "7.0T", "7000.0T"]


def test_a_narrow_or_ascii_terminal(monkeypatch):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    monkeypatch.setenv("COLUMNS", "30")
    progress.Terminal(stream).draw(STATS)
    assert raw.getvalue().startswith(b"\r\x1b[K") and len(raw.getvalue()) == 4 + 29


def test_a_terminal_that_went_away_fails_no_query():
    r, w = os.pipe()
    os.close(r)
    f = os.fdopen(w, "w", encoding="utf-8")
    progress.Terminal(f).draw(STATS)
    try:
        f.close()
    except OSError:
        pass


def test_batches_are_quiet_between(monkeypatch):
    """While the caller works on a batch nothing is drawn, however long that takes."""
    events, drawn = [], threading.Event()

    class Place:
        redraw_s = 0.001

        def draw(self, stats):
            events.append("draw")
            drawn.set()

        def wipe(self):
            events.append("wipe")

    monkeypatch.setattr(progress, "FIRST_S", 0.001)
    with progress.Progress(types.SimpleNamespace(stats=dict), Place()) as p:
        p.waiting(True)
        assert drawn.wait(20)
        p.waiting(False)
        n = len(events)
        assert events[-1] == "wipe"
        drawn.clear()
        assert not drawn.wait(0.1) and len(events) == n
        p.waiting(True)
        assert drawn.wait(20)
    assert events[-1] == "wipe"


@pytest.mark.parametrize("where", ["somewhere", "host:", ":80", "host:x", "host:70000", "::1:80", "", None, 7])
def test_init_wants_an_address(where):
    with pytest.raises(brant.errors.InvalidError, match="host:port"):
        brant.init(where)


def test_addresses():
    from brant import session as module
    assert module._address("a.b:1") == ("a.b", 1) and module._address("[::1]:9") == ("::1", 9)
