# SPDX-License-Identifier: Apache-2.0
"""The binding: results, errors, Ctrl-C, threads."""
import os
import signal
import threading

import brant
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
    with pytest.raises(brant.Error, match="memory"):
        brant.Session(memory=1000)


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


def test_events_reach_a_subscriber():
    seen = []
    with brant.Session(workers=1, distribute="always") as s:
        s.subscribe(seen.append)
        s.execute("select count(*) from range(10)").arrow()
    assert any('"query_done"' in e for e in seen)
