# SPDX-License-Identifier: Apache-2.0
"""Real processes under test: brant commands with their event stream, who is left over, faults.

Every process of a test has BRANT_TEST_MARK=<mark> in its environment (workers and executors inherit it), so that what is left over is
found whoever its parent is by now. Waits are on conditions, with a bound.
"""
import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import threading
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BRANT_BUILD_DIR", ROOT / "build"))
BRANT = BUILD / "brant"
WORKER = BUILD / "brant-worker"
DEADLINE_S = 90  # of one query on a busy machine
# What is said to be over within a second. A busy machine gives a dozen processes its two cores when it can, so only BRANT_QUIET=1 holds them to
# it; a stop that does not work would take minutes.
SECOND_S = 1.0 if os.environ.get("BRANT_QUIET") == "1" else 5.0


def wait_for(condition, seconds, what):
    """Until condition() is true (returned), at most `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def environ_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def stat_of(pid):
    """(name, state, parent) or None."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
    return name, rest[0], int(rest[1])


def marked(mark):
    """{pid: (name, state, parent)} of the processes of a test; zombies don't count."""
    found, want = {}, f"BRANT_TEST_MARK={mark}".encode()
    for p in pathlib.Path("/proc").iterdir():
        if p.name.isdigit() and int(p.name) != os.getpid() and want in environ_of(p.name):
            st = stat_of(p.name)
            if st and st[1] != "Z":
                found[int(p.name)] = st
    return found


def children(pid, name=None):
    found = []
    for p in pathlib.Path("/proc").iterdir():
        st = stat_of(p.name) if p.name.isdigit() else None
        if st and st[2] == pid and st[1] != "Z" and (name is None or st[0] == name[:15]):
            found.append(int(p.name))
    return found


def alive(pid):
    st = stat_of(pid)
    return st is not None and st[1] != "Z"


def cpu_seconds(pid):
    """User and system time of a process so far; 0 if it is gone."""
    try:
        f = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0
    return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")


def pss_bytes(pid):
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _flight(uri, secret):
    """Client of a worker's data port, with the options of its calls."""
    import pyarrow.flight as flight
    headers = [(b"authorization", b"Bearer " + secret.encode())] if secret else []
    return flight.connect("grpc://" + uri.split("//")[1]), flight.FlightCallOptions(headers=headers, timeout=20)


def worker_status(uri, secret=None):
    """What a worker says about itself: a dict."""
    import pyarrow.flight as flight
    client, options = _flight(uri, secret)
    with client:
        return json.loads(next(client.do_action(flight.Action("status", b""), options)).body.to_pybytes())


def worker_flights(uri, secret=None):
    """Paths of the outputs that a worker would serve."""
    client, options = _flight(uri, secret)
    with client:
        return [f.descriptor.path for f in client.list_flights(options=options)]


def before(events, event):
    """The events that came earlier than this one (the same object)."""
    return events[:next(i for i, e in enumerate(events) if e is event)]


def after(events, event):
    return events[next(i for i, e in enumerate(events) if e is event) + 1:]


def task_of(e):
    """(query, stage, task) of an event about an attempt."""
    return e["query"], e["stage"], e["task"]


class Events:
    """The event stream through a FIFO, read by a thread; `wait` looks at events that came since the last wait."""

    def __init__(self, path):
        self.path = path
        os.mkfifo(path)
        self.all, self._queue = [], queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        with open(self.path) as f:
            for line in f:
                e = json.loads(line)
                self.all.append(e)
                self._queue.put(e)
        self._queue.put(None)

    def wait(self, type, seconds=DEADLINE_S, **fields):
        end = time.monotonic() + seconds
        while True:
            try:
                e = self._queue.get(timeout=max(0.001, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no event {type} {fields} within {seconds} s; seen: {self.types()}") from None
            if e is None:
                raise AssertionError(f"the stream ended without {type} {fields}; seen: {self.types()}")
            if e["type"] == type and all(e.get(k) == v for k, v in fields.items()):
                return e

    def skip(self):
        """What has happened so far is not waited for any more."""
        while not self._queue.empty():
            self._queue.get()

    def of(self, type):
        return [e for e in self.all if e["type"] == type]

    def types(self):
        return [e["type"] for e in self.all][-30:]

    def close(self):
        try:  # a program that ended before it opened the FIFO leaves the reader waiting for a writer
            os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            pass
        self._thread.join(5)


class Command:
    """A running `brant …`. out, err: bytes once it has ended."""

    def __init__(self, box, args, events=False, stdin=None, stdout=None, prefix=(), env=None, start_new_session=True, cwd=None):
        self.box = box
        self.events = Events(box.dir / f"events-{uuid.uuid4().hex[:8]}") if events else None
        args = [str(a) for a in prefix] + [str(a) for a in args]
        if events:
            args += ["--events", str(self.events.path)]
        self.started = time.monotonic()
        self.p = subprocess.Popen(args, stdin=stdin or subprocess.DEVNULL, stdout=stdout or subprocess.PIPE, stderr=subprocess.PIPE,
                                  env={**box.env, **(env or {})}, start_new_session=start_new_session, cwd=cwd)
        self.out = self.err = b""

    @property
    def pid(self):
        return self.p.pid

    def end(self, seconds=DEADLINE_S):
        """Waits for its end: self, with out, err, code, seconds."""
        try:
            self.out, self.err = self.p.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.out, self.err = self.p.communicate()
            raise AssertionError(f"it did not end within {seconds} s; stderr: {self.err.decode()[-2000:]}") from None
        finally:
            if self.events:
                self.events.close()
        self.seconds = time.monotonic() - self.started
        self.code = self.p.returncode
        self.out, self.err = self.out or b"", self.err or b""
        return self

    def text(self):
        return self.err.decode("utf-8", "replace")

    def signal(self, number):
        os.kill(self.pid, number)

    def worker_pids(self):
        return children(self.pid, "brant-worker")

    def executor_pids(self, worker=None):
        return [e for w in ([worker] if worker else self.worker_pids()) for e in children(w, "brant-executor")]


class Box:
    """What a test makes: a temp dir for brant, a directory for itself, a mark for its processes."""

    def __init__(self, dir):
        self.dir = pathlib.Path(dir)
        self.mark = uuid.uuid4().hex
        self.temp = self.dir / "temp"
        self.temp.mkdir()
        self.env = {**os.environ, "BRANT_TEST_MARK": self.mark}
        self.env.pop("BRANT_SECRET", None)
        self.commands, self.sessions = [], []

    def brant(self, *args, **kw):
        c = Command(self, [BRANT, *args], **kw)
        self.commands.append(c)
        return c

    def sql(self, *texts, workers=3, threads=1, memory="512MB", options=(), temp=None, **kw):
        """brant sql, everything distributed, CSV. lineitem lies in the order of its key: rows are to move all the same."""
        return self.brant("sql", "--workers", workers, "--threads", threads, "--memory", memory, "--distribute", "always", "--format",
                          "csv", "--temp-dir", temp or self.temp, "--set", "sorted_scans=false", *options, *texts, **kw)

    def worker(self, join, *options, secret=None, prefix=(), memory="256MiB", cwd=None):
        """brant worker, as people start it by hand."""
        c = Command(self, [BRANT, "worker", "--join", join, "--temp-dir", self.temp, "--memory", memory, "--threads", 1, *options],
                    prefix=prefix, env={"BRANT_SECRET": secret} if secret else {}, cwd=cwd)
        self.commands.append(c)
        return c

    def homes(self):
        """Directories of workers: {pid: path}."""
        return {int(p.name.rsplit("-w", 1)[1]): p for p in self.temp.glob("brant-*-w*")}

    def left(self):
        """What is still there of processes and of files in the temp dir."""
        return [f"{pid} {st[0]} ({st[1]})" for pid, st in marked(self.mark).items()] + sorted(
            name for _, dirs, files in os.walk(self.temp) for name in dirs + files)

    def assert_clean(self, seconds=5):
        end = time.monotonic() + seconds
        while self.left() and time.monotonic() < end:
            time.sleep(0.02)
        assert not self.left(), f"left over {seconds} s after the end: {self.left()}"

    def close(self):
        for s in self.sessions:
            s.close()
            s.free_queries()
        for pid in marked(self.mark):
            try:
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for c in self.commands:
            if c.p.poll() is None:
                c.p.kill()
            c.p.wait()
            for f in (c.p.stdout, c.p.stderr):
                if f:
                    f.close()


def rows(out):
    """CSV output as a list of tuples of texts, without the header."""
    import csv
    import io
    return [tuple(r) for r in csv.reader(io.StringIO(out.decode()))][1:]


def assert_error(c, *parts, code=1):
    """One clear message on standard error, nothing else; the exit code; nothing left over."""
    text = c.text()
    assert c.code == code, (c.code, text)
    assert text.startswith("brant: error: "), text
    assert text.count("brant: error: ") == 1, text
    for part in parts:
        assert part in text, f"{part!r} is not in: {text}"
    c.box.assert_clean()


class Live:
    """A brantlib session in this process with its events and its processes."""

    def __init__(self, box, **options):
        import brantlib
        self.box, self._queue, self.all = box, queue.Queue(), []
        os.environ["BRANT_TEST_MARK"] = box.mark
        try:
            settings = {"sorted_scans": "false", **(options.pop("settings", None) or {})}  # rows are to move
            self.session = brantlib.Session(temp_dir=box.temp, settings=settings, **options)
            box.sessions.append(self.session)
            self.session.subscribe(self._take)
        except BaseException:
            del os.environ["BRANT_TEST_MARK"]
            raise

    def _take(self, e):
        self.all.append(e)
        self._queue.put(e)

    wait, skip, of, types = Events.wait, Events.skip, Events.of, Events.types

    def worker_pid(self, worker):
        return next(e["pid"] for e in self.all if e["type"] == "worker_joined" and e["worker"] == worker)

    def executor_pid(self, worker):
        return wait_for(lambda: children(self.worker_pid(worker), "brant-executor"), 10, "an executor")[0]

    def run(self, sql):
        """(rows as tuples, stats)"""
        import compare
        table, stats = self.session.run(sql)
        return compare.rows_of(table), stats

    def close(self):
        self.session.close()
        os.environ.pop("BRANT_TEST_MARK", None)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
