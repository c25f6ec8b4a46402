# SPDX-License-Identifier: Apache-2.0
"""The program itself: formats, where statements come from, errors and exit codes, explain, and the prompt on a terminal."""
import csv
import io
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import fcntl

import duckdb
import pyarrow as pa
import pytest

import brantlib
import files

BRANT = str(brantlib.BUILD / "brant")
DISTRIBUTED = ("--workers", "3", "--threads", "1", "--distribute", "always")
OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def brant(*args, stdin="", timeout=60, **kw):
    return subprocess.run([BRANT, *args], input=stdin, capture_output=True, text=True, timeout=timeout, **kw)


@pytest.fixture(scope="module")
def facts():
    return f"'{files.make()}/facts/*.parquet'"


def lines(text):
    return list(csv.reader(io.StringIO(text)))


# ---- formats

SAMPLE = "SELECT 1 AS a, 'x,\"y' AS b, NULL AS n, [1, NULL] AS l, {'d': DATE '2024-02-03'} AS s"


@pytest.mark.parametrize("where", [(), DISTRIBUTED])
def test_table(where):
    r = brant("sql", *where, SAMPLE)
    assert r.returncode == OK and r.stderr == ""
    out = r.stdout.split("\n")
    assert out[0].startswith("┌") and [c.strip() for c in out[1].split("│")[1:-1]] == ["a", "b", "n", "l", "s"]
    assert [c.strip() for c in out[3].split("│")[1:-1]] == ["1", 'x,"y', "NULL", "[1, NULL]", "{'d': 2024-02-03}"]
    assert out[5] == "1 row"


@pytest.mark.parametrize("where", [(), DISTRIBUTED])
def test_csv(where):
    r = brant("sql", *where, "--format", "csv", SAMPLE)
    assert r.returncode == OK
    assert lines(r.stdout) == [["a", "b", "n", "l", "s"], ["1", 'x,"y', "", "[1, NULL]", "{'d': 2024-02-03}"]]


@pytest.mark.parametrize("where", [(), DISTRIBUTED])
def test_json(where):
    r = brant("sql", *where, "--format", "json", SAMPLE + " UNION ALL " + SAMPLE)
    assert r.returncode == OK
    rows = [json.loads(x) for x in r.stdout.strip().split("\n")]
    assert rows == [{"a": 1, "b": 'x,"y', "n": None, "l": [1, None], "s": {"d": "2024-02-03"}}] * 2


def test_arrow(facts):
    query = f"SELECT id, k, s, l, st, ts, day FROM {facts} WHERE id < 5000 ORDER BY id"
    r = subprocess.run([BRANT, "sql", *DISTRIBUTED, "--format", "arrow", query], capture_output=True, timeout=60)
    assert r.returncode == OK
    got = pa.ipc.open_stream(r.stdout).read_all()
    con = duckdb.connect()
    assert con.execute("SELECT * FROM got").fetchall() == con.execute(query).fetchall()


def test_an_empty_result(facts):
    query = f"SELECT id, s FROM {facts} WHERE id < 0"
    assert "0 rows" in brant("sql", query).stdout
    assert lines(brant("sql", *DISTRIBUTED, "--format", "csv", query).stdout) == [["id", "s"]]
    assert brant("sql", "--format", "json", query).stdout.strip() in ("", "[]")
    r = subprocess.run([BRANT, "sql", "--format", "arrow", query], capture_output=True, timeout=60)
    assert pa.ipc.open_stream(r.stdout).read_all().schema.names == ["id", "s"]


def test_many_rows_keep_their_order(facts):
    out = lines(brant("sql", *DISTRIBUTED, "--format", "csv", "--set", "sort_one_task_rows=0", f"SELECT id FROM {facts} ORDER BY id DESC").stdout)
    assert [int(x[0]) for x in out[1:]] == list(range(19999, -1, -1))


def test_max_rows():
    r = brant("sql", "--max-rows", "3", "SELECT * FROM range(10)")
    assert r.stdout.count("\n│") == 4 and "10 rows (3 shown" in r.stdout
    assert brant("sql", "--max-rows", "0", "SELECT * FROM range(500)").stdout.count("\n│") == 501


def test_stats_go_to_standard_error(facts):
    r = brant("sql", *DISTRIBUTED, "--stats", "--format", "csv", f"SELECT g, count(*) FROM {facts} GROUP BY g")
    assert len(lines(r.stdout)) == 9
    assert re.search(r"^8 rows in [\d.]+ s: 2 stages, \d+ tasks, .* shuffled", r.stderr)
    assert "in this process" in brant("sql", "--distribute", "never", "--stats", "SELECT 1").stderr


def test_events(facts, tmp_path):
    log = tmp_path / "events"
    assert brant("sql", *DISTRIBUTED, "--events", str(log), f"SELECT g, count(*) FROM {facts} GROUP BY g").returncode == OK
    events = [json.loads(x) for x in log.read_text().strip().split("\n")]
    assert [e["seq"] for e in events] == sorted({e["seq"] for e in events})
    kinds = [e["type"] for e in events]
    assert kinds.count("worker_joined") == 3 and kinds.count("query_started") == kinds.count("query_done") == 1
    assert kinds.count("stage_done") == 2 and "worker_lost" not in kinds and "task_failed" not in kinds


# ---- where statements come from

def test_standard_input():
    assert lines(brant("sql", "--format", "csv", stdin="SELECT 5 AS five;\n").stdout) == [["five"], ["5"]]
    assert lines(brant("--format", "csv", stdin="SELECT 5 AS five").stdout) == [["five"], ["5"]]


def test_file_with_several_statements(facts, tmp_path):
    f = tmp_path / "q.sql"
    f.write_text(f"-- a comment; with a semicolon\nCREATE VIEW v AS SELECT g, x FROM {facts};\nSET TimeZone = 'Asia/Tokyo';\n"
                 "SELECT count(*) AS n FROM v; /* ; */ SELECT ';' AS semi, TIMESTAMPTZ '2024-01-01 00:00:00+00'::VARCHAR AS t;\n\n;")
    r = brant("sql", *DISTRIBUTED, "--format", "csv", "--file", str(f))
    assert r.returncode == OK
    assert lines(r.stdout) == [["n"], ["20000"], ["semi", "t"], [";", "2024-01-01 09:00:00+09"]]


def test_several_arguments():
    assert lines(brant("sql", "--format", "csv", "SELECT 1 AS a", "SELECT 2 AS b").stdout) == [["a"], ["1"], ["b"], ["2"]]


def test_nothing_to_do():
    for text in ("", "  ;; ", "/* only a comment */"):
        r = brant("sql", text)
        assert (r.returncode, r.stdout) == (OK, "")


def test_set(facts):
    r = brant("sql", *DISTRIBUTED, "--format", "csv", "--set", "TimeZone=America/New_York", "--set", "partitions=2", "--set", "broadcast_bytes=0",
              f"SELECT tz::DATE AS local_day, count(*) FROM {facts} WHERE id < 10 GROUP BY local_day")
    assert lines(r.stdout)[1:] == [["2024-03-29", "10"]]
    con = duckdb.connect()
    con.execute("SET TimeZone = 'America/New_York'")
    assert con.execute(f"SELECT DISTINCT tz::DATE::VARCHAR FROM {facts} WHERE id < 10").fetchall() == [("2024-03-29",)]


def test_local_tables_and_copy(tmp_path):
    out = tmp_path / "o.csv"
    r = brant("sql", "--format", "csv", f"CREATE TABLE t AS SELECT 1 AS a; INSERT INTO t VALUES (2); SELECT sum(a) AS s FROM t; COPY t TO '{out}'")
    assert r.returncode == OK and ["3"] in lines(r.stdout)
    assert out.read_text() == "a\n1\n2\n"


# ---- errors and exit codes

@pytest.mark.parametrize("args, says", [
    (["sql", "--nonsense", "SELECT 1"], "--nonsense"), (["sql", "--format", "xml", "SELECT 1"], "table, csv, json or arrow"),
    (["sql", "--workers", "0", "SELECT 1"], "--workers"), (["sql", "--workers", "many", "SELECT 1"], "--workers"),
    (["sql", "--threads", "-1", "SELECT 1"], "--threads"), (["sql", "--memory", "1MB", "SELECT 1"], "--memory"),
    (["sql", "--memory", "lots", "SELECT 1"], "lots"), (["sql", "--mode", "hasty", "SELECT 1"], "staged"),
    (["sql", "--timeout", "5", "SELECT 1"], "500ms"), (["sql", "--executors", "0", "SELECT 1"], "--executors"),
    (["sql", "--distribute", "often", "SELECT 1"], "always"), (["sql", "--set", "partitions", "SELECT 1"], "NAME=VALUE"),
    (["sql", "--max-rows", "x", "SELECT 1"], "--max-rows"), (["sql", "--format"], "format"), (["nosuch"], "nosuch"),
    (["explain", ""], "no statement")])
def test_wrong_use(args, says):
    r = brant(*args)
    assert r.returncode == USAGE and r.stdout == ""
    assert says in r.stderr and r.stderr.startswith("brant: error: ")


@pytest.mark.parametrize("args, says", [
    (["sql", "SELEC 1"], "Parser Error"), (["sql", "SELECT nope"], '"nope"'), (["sql", "SELECT 1; SELECT 2 +"], "Parser Error"),
    (["sql", "SELECT * FROM '/no/such/file.parquet'"], "/no/such/file.parquet"), (["sql", "--file", "/no/such.sql"], "/no/such.sql"),
    (["sql", "--set", "nosuch=1", "SELECT 1"], "nosuch"), (["sql", "--set", "partitions=abc", "SELECT 1"], "abc"),
    (["sql", "--set", "partitions=100000", "SELECT 1"], "65536"), (["sql", "--set", "two_step_aggregate=perhaps", "SELECT 1"], "perhaps"),
    (["sql", "--set", "shuffle_compression=rar", "SELECT 1"], "rar"), (["sql", "--set", "integer_division=true", "SELECT 1"], "//"),
    (["sql", "--temp-dir", "/proc/nowhere", "SELECT 1"], "/proc/nowhere"), (["sql", "SELECT $1"], "$1"),
    (["explain", "CREATE VIEW x AS SELECT 1"], "only a SELECT"), (["explain", "SELECT nope"], '"nope"')])
def test_failures(args, says):
    r = brant(*args)
    assert r.returncode == FAILED
    assert says in r.stderr and "brant: error: " in r.stderr


def test_a_failure_inside_tasks(facts):
    r = brant("sql", *DISTRIBUTED, "--format", "csv", f"SELECT 1 AS first; SELECT max(CASE WHEN id = 7 THEN error('boom') ELSE id END) FROM {facts}; SELECT 3")
    assert r.returncode == FAILED
    assert lines(r.stdout) == [["first"], ["1"]]  # what came before stands, what comes after is not run
    assert "boom" in r.stderr and "stage 0" in r.stderr


def test_a_closed_pipe_ends_it(facts):
    p = subprocess.Popen([BRANT, "sql", *DISTRIBUTED, "--format", "csv", f"SELECT a.name, b.name AS other FROM {facts} a, (FROM {facts} LIMIT 300) b"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout.readline() == b"name,other\n"
    p.stdout.close()
    assert p.wait(timeout=60) != OK
    p.stderr.close()


def test_help_and_version():
    for args in (["--help"], ["help"], ["sql", "--help"], ["explain", "--help"], ["worker", "--help"]):
        r = brant(*args)
        assert r.returncode == OK and "brant" in r.stdout and r.stderr == "", args
    assert re.match(r"brant \d+\.\d+", brant("version").stdout)


# ---- explain

def test_explain_text(facts):
    r = brant("explain", *DISTRIBUTED, f"SELECT g, sum(x) FROM {facts} GROUP BY g ORDER BY g")
    assert r.returncode == OK
    for text in ("stage 0: scan facts, partial aggregate", "HASH(c0)", "stage 2", "few rows to sort", "tasks: one a split", "| SELECT"):
        assert text in r.stdout, text
    r = brant("explain", *DISTRIBUTED, f"CREATE VIEW v AS SELECT * FROM {facts}; SELECT count(*) FROM v")
    assert r.returncode == OK and "partial aggregate" in r.stdout
    assert "runs in this process" in brant("explain", "CREATE TABLE t AS SELECT 1 AS a; SELECT * FROM t").stdout
    assert "the whole query runs as one task" in brant("explain", *DISTRIBUTED, f"SELECT * FROM read_csv(concat('{files.folder()}/text/a', '.csv'))").stdout


def test_explain_as_a_statement(facts):
    r = brant("sql", *DISTRIBUTED, f"EXPLAIN SELECT g, sum(x) FROM {facts} GROUP BY g")
    assert r.returncode == OK and r.stdout.startswith("stage 1: ") and "HASH(c0)" in r.stdout and "│" not in r.stdout
    r = brant("sql", "EXPLAIN (DUCKDB) SELECT 42")
    assert r.returncode == OK and "DUMMY_SCAN" in r.stdout and "stage" not in r.stdout
    assert "DUMMY_SCAN" in brant("sql", "--distribute", "never", "EXPLAIN SELECT 42").stdout


LONG = "SELECT count(*) FROM range(100000000) a(i), range(1000) b(i) WHERE (a.i * b.i) % 7 = 1"


@pytest.mark.parametrize("where", ["always", "never"])
def test_timeout(where):
    """The same message and soon after (with the start of everything, on a busy machine), wherever the query runs: it would take minutes."""
    start = time.monotonic()
    r = brant("sql", "--distribute", where, "--timeout", "1500ms", LONG)
    assert r.returncode == FAILED and "within its timeout_ms of 1500" in r.stderr and r.stdout == ""
    assert time.monotonic() - start < 15
    assert brant("sql", "--distribute", where, "--timeout", "1m", "SELECT 1").returncode == OK


def test_executors(facts):
    """Four executors in two workers, three tasks at once."""
    events = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"brant-executors-{os.getpid()}.jsonl"
    r = brant("sql", "--distribute", "always", "--workers", "2", "--executors", "3", "--events", str(events),
              "--set", "split_bytes=10000", f"SELECT g, sum(x) FROM {facts} GROUP BY g")
    told = [json.loads(line) for line in events.read_text().splitlines()]
    events.unlink()
    assert r.returncode == OK and [e["slots"] for e in told if e["type"] == "worker_joined"] == [2, 2]
    running, most = 0, 0
    for e in told:
        running += (e["type"] == "task_assigned") - (e["type"] == "task_done")
        most = max(most, running)
    assert most == 3


def test_explain_analyze(facts):
    r = brant("explain", "--analyze", *DISTRIBUTED, f"SELECT g, sum(x) FROM {facts} GROUP BY g")
    assert r.returncode == OK
    measured = r.stdout.split("Measured")[1].strip().split("\n")
    assert len(measured) == 5  # the wall time, the head, two stages, what was planned again
    assert measured[4] == "stage 1: coalesced 3 → 1"
    assert measured[2].split()[0] == "1" and measured[3].split()[0] == "0"
    assert measured[3].split()[2] == "20000" and measured[2].split()[3] == "8"


def test_explain_json(facts):
    query = f"SELECT g, sum(x) FROM {facts} GROUP BY g"
    plan = json.loads(brant("explain", "--format", "json", *DISTRIBUTED, query).stdout)
    assert plan["whole_query_reason"] is None and [s["id"] for s in plan["stages"]] == [0, 1]
    assert "measured" not in plan["stages"][0] and plan["stages"][1]["inputs"][0]["producer"] == 0
    plan = json.loads(brant("explain", "--analyze", "--format", "json", *DISTRIBUTED, query).stdout)
    assert plan["stages"][0]["measured"]["rows_in"] == 20000 and plan["stages"][1]["measured"]["rows_out"] == 8
    assert plan["stages"][1]["measured"]["adapted"] == "coalesced 3 → 1" and sum(s["tasks"] for s in plan["stages"]) >= 4


LEAVES = ["SELECT g, count(*), sum(x), min(name) FROM {f} WHERE ok GROUP BY g", "SELECT id, l, st.b FROM {f} WHERE id < 100 ORDER BY id",
          "SELECT a.g, b.label FROM {f} a JOIN '{d}/dims/*.parquet' b ON a.k = b.k", "SELECT DISTINCT s FROM {f} UNION SELECT label FROM '{d}/dims/d.parquet'",
          "SELECT id, filename FROM read_parquet('{d}/odd/*.parquet', filename = true) JOIN (SELECT i AS id FROM '{d}/odd/plain.parquet') ON i = id",
          "SELECT year, count(*) FROM '{d}/hive/**/*.parquet' GROUP BY year", "SELECT sum(i) FROM range(100) r(i)"]


@pytest.mark.parametrize("query", LEAVES)
def test_a_stage_without_inputs_is_plain_sql(facts, query):
    """A person can run a task's SQL alone; and all that a plan's leaves say is what DuckDB itself can run."""
    query = query.format(f=facts, d=files.folder())
    plan = json.loads(brant("explain", "--format", "json", *DISTRIBUTED, "--set", "broadcast_bytes=0", query).stdout)
    leaves = [s for s in plan["stages"] if not s["inputs"]]
    assert leaves and not plan["whole_query_reason"]
    con = duckdb.connect()
    for stage in leaves:
        assert not any(scan["token"] in stage["task_sql"] for scan in stage["scans"])
        assert len(con.execute(stage["task_sql"]).description) >= len(stage["types"])


@pytest.mark.parametrize("kind", ["RIGHT", "FULL"])
def test_an_asof_join_ends_on_one_core(kind, tmp_path):
    """DuckDB on one thread would not end it, nor hear an interrupt."""
    one = tmp_path / "lib.c"
    one.write_text("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <unistd.h>\nlong sysconf(int n) {\n"
                   "  long (*real)(int) = (long (*)(int))dlsym(RTLD_NEXT, \"sysconf\");\n  return n == _SC_NPROCESSORS_ONLN ? 1 : real(n);\n}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "one.so", one], check=True)
    text = f"""CREATE TABLE l AS SELECT i AS k, i AS x FROM range(50) t(i); CREATE TABLE r AS SELECT -i - 1 AS k, i AS x FROM range(50) t(i);
        SELECT count(*), count(l.x), sum(r.x) FROM l ASOF {kind} JOIN r ON l.k = r.k AND l.x > r.x"""
    r = brant("sql", text, env={**os.environ, "LD_PRELOAD": str(tmp_path / "one.so")}, timeout=20)
    assert r.returncode == 0 and re.findall(r"\d+", r.stdout)[-4:-1] == (["50", "0", "1225"] if kind == "RIGHT" else ["100", "50", "1225"]), r.stdout + r.stderr


# ---- a terminal

class Terminal:
    """The program with a terminal of 100 columns as its standard input, output and error."""

    def __init__(self, *args, env=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(BRANT, [BRANT, *args], {**os.environ, "TERM": "xterm", **(env or {})})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.text, self.at, self.code = "", 0, None

    def _read(self, until):
        """False: the program has ended its output."""
        if not select.select([self.fd], [], [], max(0.0, until - time.monotonic()))[0]:
            raise AssertionError(f"nothing more came: {self.text[self.at:]!r}")
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # its side of the terminal is closed
            data = b""
        self.text += data.decode("utf-8", "replace")
        return bool(data)

    def expect(self, pattern, timeout=30):
        """Wait until the pattern comes; what came before it is passed over."""
        until = time.monotonic() + timeout
        while True:
            m = re.compile(pattern).search(self.text, self.at)
            if m:
                self.at = m.end()
                return m.group(0)
            if not self._read(until):
                raise AssertionError(f"it ended without {pattern!r}: {self.text[self.at:]!r}")

    def send(self, text):
        os.write(self.fd, text.encode())

    def end(self, timeout=30):
        """Wait for the end: its exit code."""
        until = time.monotonic() + timeout
        while self._read(until):
            pass
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                raise AssertionError("it did not end")
        os.close(self.fd)
        return self.code

    def prompt(self, pattern="brant> ", timeout=30):
        """Wait until the prompt is drawn and the terminal is in raw mode: a key that comes between the two gets lost."""
        self.expect(pattern, timeout)
        until = time.monotonic() + timeout
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            assert time.monotonic() < until
            select.select([], [], [], 0.005)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self.fd)


@pytest.fixture
def home(tmp_path):
    return {"HOME": str(tmp_path)}


def long_query(facts):
    return f"SELECT count(*) FROM {facts} a, {facts} b, {facts} c WHERE a.id + b.id + c.id = -1"


def test_prompt(facts, home, tmp_path):
    with Terminal(*DISTRIBUTED, env=home) as t:
        t.prompt()
        t.send(f"SELECT g, count(*) AS n\nFROM {facts}\nGROUP BY g ORDER BY g;\n")
        t.expect(r"8 rows")
        t.prompt()
        t.send("SELECT nope;\n")
        t.expect('brant: error: .*"nope"')
        t.prompt()
        t.send("CREATE VIEW v AS SELECT 41 + 1 AS answer;\n")
        t.prompt()
        t.send("SELECT * FROM v;\n")
        t.expect("42")
        t.prompt()
        t.send(".format csv\nSELECT answer, answer FROM v;\n")
        t.expect("42,42")
        t.prompt()
        t.send(f".explain SELECT count(*) FROM {facts};\n")
        t.expect("stage 0")
        t.prompt()
        t.send(".help\n")
        t.expect("Ctrl-D")
        t.prompt()
        t.send("\x04")
        assert t.end() == OK
    assert "SELECT * FROM v" in (tmp_path / ".brant_history").read_text().replace("\\040", " ")


def test_prompt_ctrl_c_cancels_within_a_second(facts, home):
    with Terminal(*DISTRIBUTED, env=home) as t:
        t.prompt()
        took = []
        for _ in range(3):  # a busy machine gets a second and a third chance
            t.send(long_query(facts) + ";\n")
            t.expect(r"tasks \d+/\d+ \([1-9]\d* run\)")
            began = time.monotonic()
            t.send("\x03")
            t.expect("brant: error: .*cancelled")
            t.prompt()
            took.append(time.monotonic() - began)
            if took[-1] < 1:
                break
        assert min(took) < 1, took
        t.send("SELECT 6 * 7 AS answer;\n")  # and goes on
        t.expect("42")
        t.prompt()
        t.send(".quit\n")
        assert t.end() == OK


def test_prompt_ctrl_c_clears_the_line(home):
    with Terminal(env=home) as t:
        t.prompt()
        t.send("SELECT 'never")
        t.expect("never")
        t.send("\x03")
        t.prompt()
        t.send("SELECT 6 * 7 AS answer;\n")
        t.expect("42")
        t.prompt()
        t.send("SELECT\n")
        t.prompt(r"\.\.\.> ")
        t.send("\x03")
        t.prompt()
        t.send("SELECT 8 * 8 AS answer;\n")
        t.expect("64")
        t.prompt()
        t.send("\x04")
        assert t.end() == OK


def test_ctrl_c_ends_a_command(facts, home):
    with Terminal("sql", *DISTRIBUTED, long_query(facts), env=home) as t:
        t.expect(r"tasks \d+/\d+ \([1-9]\d* run\)")
        t.send("\x03")
        t.expect("brant: error: .*cancelled")
        assert t.end() == INTERRUPTED


def test_progress_on_a_terminal_only(facts, home):
    slow = f"SELECT count(*) AS n FROM {facts} a, (SELECT * FROM {facts} LIMIT 5000) b WHERE a.x * b.x > 1e9"
    with Terminal("sql", *DISTRIBUTED, slow, env=home) as t:
        t.expect(r"░.*stages \d+/\d+ tasks \d+/\d+")
        t.expect(r"\r\x1b\[K\S*┌")  # wiped before the result
        t.expect("1 row")
        assert t.end() == OK
    with Terminal("sql", "--no-progress", *DISTRIBUTED, slow, env=home) as t:
        assert t.end() == OK
        assert "stages" not in t.text
    r = brant("sql", *DISTRIBUTED, slow)
    assert r.returncode == OK and r.stderr == "" and "\r" not in r.stdout
