# SPDX-License-Identifier: Apache-2.0
"""The binding: results, errors, Ctrl-C, threads."""
import concurrent.futures
import os
import signal
import threading
import time

import brant
import pyarrow as pa
import pytest


def test_rows_come_back(session):
    r = session.execute("select i, i * 2 as j from range(10) t(i)")
    assert r.arrow().to_pydict() == {"i": list(range(10)), "j": list(range(0, 20, 2))}
    assert r.stats()["rows_out"] == 10


def test_wide_integers_are_decimals(session):
    t = session.execute("select sum(i) s, [i::hugeint * 1000000000000000000000] l, (-5 - i)::hugeint h, {'a': null::hugeint} st"
                        " from range(2) t(i) group by all order by h").arrow()
    assert t.to_pylist() == [{"s": 1, "l": [10**21], "h": -6, "st": {"a": None}}, {"s": 0, "l": [0], "h": -5, "st": {"a": None}}]
    assert str(t.schema.field("s").type) == "decimal128(38, 0)"


def test_batches_one_by_one(session):
    rows = sum(b.num_rows for b in session.execute("select i from range(300000) t(i)").batches())
    assert rows == 300000


def test_a_script_gives_its_last_result(session):
    assert session.execute("create or replace view v as select 7 as a; select a + 1 as b from v").arrow().to_pydict() == {"b": [8]}


@pytest.mark.parametrize("sql, kind, code", [("select * from nope", brant.errors.InvalidError, "INVALID"),
                                             ("selec 1", brant.errors.InvalidError, "INVALID"),
                                             ("select * from 'nope.parquet'", brant.errors.Error, None),
                                             ("select cast('x' || i as int) from range(3) t(i)", brant.errors.ExecutionError, "EXECUTION")])
def test_errors_have_classes(session, sql, kind, code):
    with pytest.raises(kind) as e:
        session.execute(sql).arrow()
    assert isinstance(e.value, brant.Error) and (code is None or e.value.code == code) and str(e.value)
    assert session.execute("select 1 as a").arrow().to_pydict() == {"a": [1]}


def test_wrong_options():
    for bad in ({"mode": "fast"}, {"distribute": "maybe"}):
        with pytest.raises(ValueError, match=list(bad.values())[0]):
            brant.Session(**bad)
    for few in (1000, "1 kB", "lots"):
        with pytest.raises(brant.Error, match="memory"):
            brant.Session(memory=few)


def test_options_as_people_write_them(tmp_path):
    with brant.Session(workers=1, threads=1, memory="1GiB", temp_dir=tmp_path, distribute="always") as s:
        assert s.execute("select 1 as a").arrow().to_pydict() == {"a": [1]} and list(tmp_path.iterdir())


def test_a_closed_session_says_so():
    s = brant.Session()
    s.close()
    s.close()
    with pytest.raises(ValueError, match="closed"):
        s.execute("select 1")


def test_a_result_outlives_its_session_as_an_error():
    s = brant.Session(workers=1, distribute="always")
    r = s.execute("select count(*) from range(1000000000) a(i) where i % 7 = 1")
    s.close()
    with pytest.raises(brant.Error):
        r.arrow()


def test_ctrl_c_stops_a_query(session):
    started = threading.Event()

    def strike():
        started.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=strike, daemon=True).start()
    r = session.execute("select count(*) from range(100000000) a(i) join range(1000) b(j) on a.i % 7 <> b.j")
    started.set()
    with pytest.raises(KeyboardInterrupt):
        r.arrow()
    assert session.execute("select 1 as a").arrow().to_pydict() == {"a": [1]}


ENDLESS = "select sum(hash(a.i + b.j)) as n from range(10000000) a(i), range(1000000) b(j)"


@pytest.mark.parametrize("what", ["create table x as ", "insert into t ", "create temp table x as ", "explain analyze ", "show", "write", "count", "rows",
                                  "stream"])
def test_ctrl_c_stops_whatever_waits(what, tmp_path):
    """And the session goes on; so does a deadline, where the statement runs at once."""
    with brant.Session(workers=2, threads=1, distribute="always", progress=False) as s:
        s.execute("create table t (n hugeint)").arrow()
        struck = []

        def strike(text):
            if "task_started" in text and not struck:
                struck.append(1)
                os.kill(os.getpid(), signal.SIGINT)

        df = brant.sql(ENDLESS, session=s)
        assert df.columns == ["n"]
        s.subscribe(strike)
        calls = {"show": df.show, "write": lambda: df.write_parquet(tmp_path / "x.parquet"), "count": df.count_rows, "rows": lambda: list(df.iter_rows()),
                 "stream": lambda: pa.table(df), "explain analyze ": lambda: df.explain(analyze=True)}
        call = calls.get(what, lambda: brant.sql(what + ENDLESS, session=s))
        with pytest.raises((KeyboardInterrupt, OSError) if what == "stream" else KeyboardInterrupt):  # a C stream can carry words alone
            call()
        assert struck and not list(tmp_path.iterdir())
        if "into" in what or "table" in what:
            s.set("timeout_ms", 1500)
            with pytest.raises(brant.errors.QueryTimeoutError):
                call()
            s.set("timeout_ms", 0)
        assert s.execute("select count(*) as n from t").arrow().to_pydict() == {"n": [0]}


def test_others_run_while_the_engine_does():
    """The GIL is free: a thread of Python counts while this one waits, for a query on workers and for one in this process."""
    for distribute in ("always", "never"):
        with brant.Session(workers=1, threads=1, distribute=distribute, progress=False) as s:
            counted, over = [0], threading.Event()

            def count(counted=counted, over=over):
                while not over.is_set():
                    counted[0] += 1
                    time.sleep(0.001)

            t = threading.Thread(target=count)
            r = s.execute("select sum(hash(i * 7)) as h from range(60000000) t(i)")
            t.start()
            begin = time.monotonic()
            r.arrow()
            took = time.monotonic() - begin
            over.set()
            t.join()
            assert took > 0.1 and counted[0] > took * 50, (distribute, took, counted)  # of up to 1,000 a second


def test_cancel_from_another_thread(session):
    r = session.execute("select count(*) from range(100000000) a(i) join range(1000) b(j) on a.i % 7 <> b.j")
    threading.Timer(0.1, r.cancel).start()
    with pytest.raises(brant.errors.CancelledError):
        r.arrow()


def test_threads_share_a_session(session):
    got, bad = [], []

    def work(k):
        try:
            got.append(session.execute(f"select sum(i)::bigint as s from range({k}) t(i)").arrow().to_pydict()["s"][0])
        except Exception as e:  # noqa: BLE001
            bad.append(e)

    threads = [threading.Thread(target=work, args=(1000 + k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not bad and sorted(got) == [sum(range(1000 + k)) for k in range(6)]


def test_files_are_written_by_several_threads(tmp_path):
    """While others submit, and while frames that are gone take their tables with them."""
    numbers = brant.range(20000).with_column("k", brant.col("id") % 8)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda i: numbers.where(brant.col("k") == i % 8).write_parquet(tmp_path / f"{i}.parquet"), range(24)))
    for i in range(20):
        brant.from_arrow(pa.table({"x": list(range(5000))})).write_parquet(tmp_path / f"t{i}.parquet")
    assert [brant.read_parquet(tmp_path / f"{i}.parquet").count_rows() for i in range(24)] == [2500] * 24
    assert brant.read_parquet(f"{tmp_path}/t*.parquet").count_rows() == 100000


def test_closed_while_threads_use_it():
    """Each of their calls ends with an error or with what it was to give, whatever it was about to do."""
    calls = [lambda s: s.execute("select 42 as a").arrow(), lambda s: s.explain("select 42 as a"), lambda s: s.set("partitions", 3),
             lambda s: s._native.register_arrow("t", pa.table({"a": [1]})), lambda s: s._native.interrupt()]
    for _ in range(5):
        s = brant.Session(workers=1, distribute="never")
        used, odd = threading.Barrier(len(calls) + 1, timeout=60), []

        def work(call):
            for i in range(5000):
                try:
                    call(s)
                except (ValueError, brant.errors.CancelledError):  # it is closed, or the last of the calls stopped this one
                    pass
                except BaseException as e:  # noqa: BLE001
                    odd.append(e)
                if i == 0:
                    used.wait()

        threads = [threading.Thread(target=work, args=(c,)) for c in calls]
        for t in threads:
            t.start()
        used.wait()
        s.close()
        for t in threads:
            t.join(60)
            assert not t.is_alive()
        assert not odd, odd


@pytest.mark.parametrize("what", ["submit", "persist"])
def test_close_stops_what_another_thread_waits_for(what):
    endless = "select sum(hash(a.i + b.i)) as n from range(10000000) a(i), range(10000000) b(i)"
    s = brant.Session(workers=1, threads=1, memory=1 << 29, distribute="always" if what == "persist" else "never")
    started, ended = threading.Event(), []
    s.subscribe(lambda text: started.set() if "task_started" in text else None)

    def work():
        try:
            s.keep(endless, "kept") if what == "persist" else s.execute(f"create table x as {endless}")
        except brant.Error as e:
            ended.append(e.code)

    t = threading.Thread(target=work)
    before = time.process_time()
    t.start()
    if what == "persist":
        assert started.wait(60)
    while what == "submit" and time.process_time() < before + 0.3:  # DuckDB works in this process
        time.sleep(0.01)
    s.close()
    t.join(60)
    assert not t.is_alive() and ended == ["CANCELLED"], ended


def test_events_reach_a_subscriber():
    seen = []
    with brant.Session(workers=1, distribute="always") as s:
        s.subscribe(seen.append)
        s.execute("select count(*) from range(10)").arrow()
    assert any('"query_done"' in e for e in seen)
