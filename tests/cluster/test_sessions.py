# SPDX-License-Identifier: Apache-2.0
"""Sessions and results that end in unusual orders: cancelled, released, closed early, many one after the other."""
import os
import pathlib
import signal
import threading
import time

import brantlib
import paths
import pytest
from harness import SECOND_S, Live, children, marked, wait_for

ROWS = "select * from '{}/lineitem/*.parquet'"
WORK = "select l_linenumber, sum(length(sha256(l_comment))) from '{}/lineitem/*.parquet' group by all order by all"
COUNT = "select count(*) from '{}/orders/*.parquet'"
MEMORY = 256 << 20


def refusal(q, free=True):
    """free: not while another thread may still call something of it."""
    with pytest.raises(brantlib.BrantError) as e:
        q.table()
    if free:
        q.free()
    return e.value


@pytest.mark.parametrize("where, query", [("always", WORK), ("never", "select hash(range) from range(1000000000000)")])
def test_cancel_from_another_thread(box, big, small, where, query):
    """The stream ends within a second with CANCELLED, and the session goes on."""
    with Live(box, workers=2, memory=MEMORY, distribute=where) as live:
        q = live.session.submit(query.format(big))
        if where == "always":
            live.wait("task_started")
        when = []

        def cancel():
            when.append(time.monotonic())
            q.cancel()
            q.cancel()

        t = threading.Timer(0, cancel)
        t.start()
        e = refusal(q, free=False)
        took = time.monotonic() - when[0]
        t.join()
        q.free()
        assert e.code == "CANCELLED" and took < SECOND_S, (e, took)
        assert live.run(COUNT.format(small))[0] == [(150000,)]
    box.assert_clean()


def test_cancel_is_seen_by_workers(box, big):
    """After a cancel no task runs, no output stays."""
    with Live(box, workers=2, memory=MEMORY) as live:
        q = live.session.submit(WORK.format(big))
        live.wait("task_done")
        q.cancel()
        assert refusal(q).code == "CANCELLED"
        wait_for(lambda: not paths.found(box.temp, "*/shuffle/*"), 5, "shuffle files are gone")
        for w in children(os.getpid(), "brant-worker"):
            assert wait_for(lambda: children(w, "brant-executor"), 5, "its executor is there")
    box.assert_clean()


def test_interrupt_while_it_plans(box, big):
    """brant_interrupt ends a brant_submit that works in this thread's DuckDB."""
    with Live(box, workers=1, memory=MEMORY, distribute="never") as live:
        over = threading.Event()

        def interrupt():
            while not over.wait(0.05):
                live.session.interrupt()

        t = threading.Thread(target=interrupt)
        t.start()
        with pytest.raises(brantlib.BrantError) as e:
            live.session.submit("create table x as select sum(hash(range)) from range(1000000000000)")
        over.set()
        t.join()
        assert e.value.code == "CANCELLED"
        assert live.run("select 1 as one")[0] == [(1,)]


def test_stream_released_before_its_end(box, big, small):
    with Live(box, workers=2, memory=MEMORY) as live:
        q = live.session.submit(ROWS.format(big))
        reader = q.reader()
        assert reader.read_next_batch().num_rows > 0
        q.free()
        del reader
        assert live.run(COUNT.format(small))[0] == [(150000,)]
        wait_for(lambda: not paths.found(box.temp, "*/shuffle/*"), 5, "its outputs are gone")
    box.assert_clean()


def test_query_freed_before_its_end(box, big, small):
    """Without a stream: freeing it cancels it."""
    with Live(box, workers=2, memory=MEMORY) as live:
        q = live.session.submit(WORK.format(big))
        live.wait("task_started")
        q.free()
        live.wait("query_failed", seconds=10, code="CANCELLED")
        assert live.run(COUNT.format(small))[0] == [(150000,)]
    box.assert_clean()


def test_session_closed_with_a_running_query(box, big):
    with Live(box, workers=2, memory=MEMORY) as live:
        q = live.session.submit(WORK.format(big))
        live.wait("task_started")
        live.close()
        assert not marked(box.mark)
        assert refusal(q).code == "CANCELLED"
    box.assert_clean()


def test_session_closed_while_another_thread_reads(box, big):
    with Live(box, workers=2, memory=MEMORY) as live:
        q = live.session.submit(WORK.format(big))
        live.wait("task_started")
        errors = []
        t = threading.Thread(target=lambda: errors.append(refusal(q)))
        t.start()
        live.close()
        t.join(10)
        assert not t.is_alive() and errors[0].code == "CANCELLED"
    box.assert_clean()


def test_session_closed_with_an_open_stream(box, big):
    """Rows that were handed out stay valid; the next batch is refused."""
    with Live(box, workers=2, memory=MEMORY) as live:
        q = live.session.submit(ROWS.format(big))
        reader = q.reader()
        batch = reader.read_next_batch()
        rows = batch.num_rows
        live.close()
        with pytest.raises(Exception, match="cancelled|closed"):
            while True:
                reader.read_next_batch()
        del reader
        q.free()
        assert batch.num_rows == rows and batch.column(0)[rows - 1].as_py() > 0
    box.assert_clean()


def test_deadline(box, big, small):
    with Live(box, workers=2, memory=MEMORY, settings={"timeout_ms": 300}) as live:
        with pytest.raises(brantlib.BrantError) as e:  # of the submit, when starting and planning take that long
            live.run(WORK.format(big))
        assert e.value.code == "TIMEOUT", e.value
        live.session.set("timeout_ms", 0)
        assert live.run(COUNT.format(small))[0] == [(150000,)]
    box.assert_clean()


def test_deadline_of_many_short_tasks(box, big):
    """Each task is short, together they are not: the deadline comes after some of them have ended, however slow the machine is."""
    work = WORK.format(big).replace(f"'{big}/lineitem/*.parquet'", f"read_parquet({[f'{big}/lineitem/*.parquet'] * 20})")
    with Live(box, workers=1, memory=MEMORY, settings={"split_bytes": 1}) as live:
        live.run("select 1")  # the worker is there
        for ms in (700, 3000, 12000, 48000):
            live.session.set("timeout_ms", ms)
            with pytest.raises(brantlib.BrantError) as e:
                live.run(work)
            assert e.value.code == "TIMEOUT" and "timeout_ms" in e.value.message, e.value
            if len(live.of("task_done")) > 2:
                break
        assert len(live.of("task_done")) > 2
    box.assert_clean()


def test_two_queries_at_once(box, big, small):
    """Both run on the same workers, each gets its own rows."""
    with Live(box, workers=2, memory=MEMORY) as live:
        a = live.session.submit(WORK.format(big))
        b = live.session.submit(COUNT.format(small))
        assert b.table().to_pylist() == [{"count_star()": 150000}]
        assert a.table().num_rows == 7
        a.free()
        b.free()


def own_state():
    fds = len(os.listdir("/proc/self/fd"))
    threads = len(os.listdir("/proc/self/task"))
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS:"):
            return fds, threads, int(line.split()[1]) * 1024


def sanitized():
    """Address sanitizer keeps freed memory for a while."""
    return "libasan" in open("/proc/self/maps").read()


def test_many_sessions_leave_nothing_behind(box, small):
    """Opened, used, closed; in the middle of a query every third time."""
    def once(i):
        with brantlib.Session(workers=1, memory=MEMORY, temp_dir=box.temp) as s:
            q = s.submit(COUNT.format(small))
            if i % 3:
                assert q.table().to_pylist() == [{"count_star()": 150000}]
            q.free()

    os.environ["BRANT_TEST_MARK"] = box.mark
    try:
        for i in range(6):
            once(i)
        fds, threads, rss = own_state()
        for i in range(12):
            once(i)
        after = own_state()
    finally:
        del os.environ["BRANT_TEST_MARK"]
    assert after[0] == fds and after[1] == threads, (fds, threads, after)
    assert sanitized() or after[2] - rss < 12 << 20, f"{(after[2] - rss) >> 10} KiB more after 12 sessions"
    assert not children(os.getpid(), "brant-worker")
    box.assert_clean()


def test_many_queries_in_one_session_leave_nothing_behind(box, small):
    with Live(box, workers=2, memory=MEMORY) as live:
        text = f"select o_orderpriority, count(*) from '{small}/orders/*.parquet' group by all order by all"
        for _ in range(20):
            live.run(text)
        fds, threads, rss = own_state()
        workers = {w: len(os.listdir(f"/proc/{w}/fd")) for w in marked(box.mark)}
        for _ in range(100):
            live.run(text)
        after = own_state()
        assert after[0] == fds and after[1] == threads, (fds, threads, after)
        assert sanitized() or after[2] - rss < 12 << 20, f"{(after[2] - rss) >> 10} KiB more after 100 queries"
        for pid, n in workers.items():
            # the last query's outputs go a little after its last row was read
            wait_for(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= n + 2, 10, f"process {pid} with {n} descriptors again")
        wait_for(lambda: not paths.found(box.temp, "*/shuffle/*"), 5, "no files of queries that are over")
    box.assert_clean()


def test_sigchld_ignored_by_the_program(box, small):
    """A program that ignores its children: workers still start, work and end."""
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with Live(box, workers=2, memory=MEMORY) as live:
            assert live.run(COUNT.format(small))[0] == [(150000,)]
    finally:
        signal.signal(signal.SIGCHLD, old)
    box.assert_clean()


def test_working_directory_that_changes(box, small):
    """Workers keep the old one; relative paths mean the caller's."""
    old = os.getcwd()
    try:
        with Live(box, workers=1, memory=MEMORY) as live:
            assert live.run(COUNT.format(small))[0] == [(150000,)]
            os.chdir(small)
            assert live.run("select count(*) from 'orders/*.parquet'")[0] == [(150000,)]
            os.chdir(pathlib.Path(small) / "orders")
            assert live.run("select count(*) from '*.parquet'")[0] == [(150000,)]
    finally:
        os.chdir(old)


def test_workers_that_died_between_queries(box, small):
    """All of them, while nothing runs: the next query has new ones."""
    with Live(box, workers=2, memory=MEMORY) as live:
        assert live.run(COUNT.format(small))[0] == [(150000,)]
        for pid in children(os.getpid(), "brant-worker"):
            os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            live.wait("worker_lost", seconds=10)
        assert live.run(COUNT.format(small))[0] == [(150000,)]
        assert len(children(os.getpid(), "brant-worker")) == 2
    box.assert_clean()


def test_thread_that_opened_the_session_ends(box, small):
    """Linux tells children when the thread that started them ends; workers know that their parent lives on."""
    opened = []
    t = threading.Thread(target=lambda: opened.append(Live(box, workers=2, memory=MEMORY)))
    t.start()
    t.join()
    t = threading.Thread(target=lambda: opened[0].run(COUNT.format(small)))
    t.start()
    t.join()
    with opened[0] as live:
        assert live.run(COUNT.format(small))[0] == [(150000,)]
        assert not live.of("worker_lost") and len(live.of("worker_joined")) == 2
    box.assert_clean()


def test_worker_dies_while_its_rows_are_read(box, big, small):
    """Rows were handed out, so they can't be made again silently: an error that says so, and the session goes on."""
    with Live(box, workers=1, memory=MEMORY) as live:
        q = live.session.submit(f"select l_orderkey, l_comment from '{big}/lineitem/*.parquet'")
        reader = q.reader()
        rows = reader.read_next_batch().num_rows
        os.kill(live.worker_pid(1), signal.SIGKILL)
        try:
            rows += sum(b.num_rows for b in reader)
            assert rows == 6001215
        except OSError as e:
            assert "run the query again" in str(e), e
        q.free()
        assert live.run(COUNT.format(small))[0] == [(150000,)]
    box.assert_clean()


def test_programs_share_a_temp_dir(box, small):
    """None takes another's directory for a dead one's."""
    running = [box.sql(f"select l_linenumber, count(*) from '{small}/lineitem/*.parquet' group by all order by all", workers=2,
                       memory="128MiB") for _ in range(4)]
    outs = {c.end().out for c in running}
    assert all(c.code == 0 and c.err == b"" for c in running), [c.text() for c in running]
    assert len(outs) == 1
    box.assert_clean()


def test_long_temp_dir(box, small):
    """Too long for Unix sockets: peers use TCP."""
    deep = box.temp / ("d" * 120)
    c = box.sql(f"select l_linenumber, count(*) from '{small}/lineitem/*.parquet' group by all", workers=2, temp=deep).end()
    assert c.code == 0 and c.err == b"", c.text()
    deep.rmdir()
    box.assert_clean()


def test_relative_temp_dir(box, small):
    c = box.sql(f"select count(*) from '{small}/orders/*.parquet'", workers=2, temp="temp", cwd=box.dir).end()
    assert c.code == 0 and c.err == b"", c.text()
    box.assert_clean()


def test_few_descriptors(box, small):
    """A soft limit of 64 files; workers raise theirs to the hard one."""
    c = box.sql(f"select l_suppkey, count(*) from '{small}/lineitem/*.parquet' group by all", workers=3, options=["--set", "partitions=40"],
                prefix=["prlimit", "--nofile=64:4096", "--"]).end()
    assert c.code == 0 and c.err == b"", c.text()
    box.assert_clean()
