# SPDX-License-Identifier: Apache-2.0
"""brant's Flight server read by pyarrow.flight, and pyarrow.flight's server read by brant's client.

The programs are interop-flight_server and interop-flight_client of the build folder (BRANT_BUILD_DIR, else build/)."""
import json
import os
import pathlib
import subprocess
import threading

import pyarrow as pa
import pyarrow.flight as fl
import pytest

BUILD = pathlib.Path(os.environ.get("BRANT_BUILD_DIR", pathlib.Path(__file__).parents[2] / "build"))
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("s", pa.string())])


def rows(start, n):
    ids = range(start, start + n)
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array([i / 2 if i % 7 else None for i in ids], pa.float64()),
                            pa.array([f"row {i}" for i in ids])], schema=SCHEMA)


class Server:
    def __init__(self, *args):
        self.p = subprocess.Popen([BUILD / "interop-flight_server", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.p.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.stdin.close()
        assert self.p.wait(20) == 0
        self.p.stdout.close()


@pytest.fixture
def client():
    with Server() as s, fl.connect(f"grpc://127.0.0.1:{s.port}") as c:
        yield c


def test_do_get(client):
    t = client.do_get(fl.Ticket(b"table 100000 1234")).read_all()
    assert t.schema == SCHEMA
    assert t.equals(pa.Table.from_batches([rows(0, 100000)]))


def test_do_get_app_metadata_and_batches(client):
    got = list(client.do_get(fl.Ticket(b"table 10 4")))
    assert [c.data.num_rows for c in got] == [4, 4, 2]
    assert all(c.app_metadata.to_pybytes() == b"meta" for c in got)


def test_do_get_large_batches(client):
    n = 0
    for c in client.do_get(fl.Ticket(b"table 1000000 400000")):
        n += c.data.num_rows
    assert n == 1000000


def test_do_get_no_rows(client):
    assert client.do_get(fl.Ticket(b"table 0 1")).read_all().num_rows == 0


def test_many_streams_on_one_client(client):
    sums = {}

    def read(k):
        sums[k] = client.do_get(fl.Ticket(f"table {1000 * k} 100".encode())).read_all().num_rows

    threads = [threading.Thread(target=read, args=(k,)) for k in range(1, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sums == {k: 1000 * k for k in range(1, 9)}


def test_cancel_and_go_on(client):
    r = client.do_get(fl.Ticket(b"table 100000000 1000"))
    r.read_chunk()
    r.read_chunk()
    r.cancel()
    assert client.do_get(fl.Ticket(b"table 10 10")).read_all().num_rows == 10


def test_errors(client):
    with pytest.raises(KeyError, match="no such ticket: 'nothing'"):
        client.do_get(fl.Ticket(b"nothing")).read_all()
    for ticket in (b"fail", b"fail-later"):
        with pytest.raises(Exception, match="it broke: 50% done, ä\nsecond line"):
            client.do_get(fl.Ticket(ticket)).read_all()


def test_list_flights(client):
    infos = list(client.list_flights())
    assert [i.descriptor.path for i in infos] == [[b"first"], [b"second"]]
    assert all(i.schema == SCHEMA and i.total_records == 100 and i.total_bytes == 4000 for i in infos)


def test_get_flight_info_and_schema(client):
    d = fl.FlightDescriptor.for_path("anything")
    info = client.get_flight_info(d)
    assert info.descriptor == d
    assert info.schema == SCHEMA
    assert client.get_schema(d).schema == SCHEMA
    assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 100
    command = fl.FlightDescriptor.for_command(b"select 1")
    assert client.get_flight_info(command).descriptor == command


def test_actions(client):
    assert [(a.type, a.description) for a in client.list_actions()] == [("echo", "the body back"),
                                                                        ("count", "that many results")]
    body = os.urandom(3_000_000)
    assert [r.body.to_pybytes() for r in client.do_action(("echo", body))] == [body]
    assert [r.body.to_pybytes() for r in client.do_action(("count", b"500"))] == [str(i).encode() for i in range(500)]
    assert list(client.do_action(("count", b"0"))) == []
    with pytest.raises(pa.ArrowInvalid, match="no action 'what'"):
        list(client.do_action(("what", b"")))


def test_not_offered(client):
    with pytest.raises(pa.ArrowNotImplementedError, match="DoPut"):
        w, _ = client.do_put(fl.FlightDescriptor.for_path("x"), SCHEMA)
        w.write_batch(rows(0, 10))
        w.close()
    assert client.do_get(fl.Ticket(b"table 10 10")).read_all().num_rows == 10


def test_deadline(client):
    with pytest.raises(fl.FlightTimedOutError):
        client.do_get(fl.Ticket(b"table 1000000000 1000"), fl.FlightCallOptions(timeout=0.3)).read_all()


def test_bearer():
    with Server("s3cret") as s, fl.connect(f"grpc://127.0.0.1:{s.port}") as c:
        good = fl.FlightCallOptions(headers=[(b"authorization", b"Bearer s3cret")])
        assert c.do_get(fl.Ticket(b"table 10 10"), good).read_all().num_rows == 10
        for headers in ([], [(b"authorization", b"Bearer s3cre")], [(b"authorization", b"Basic s3cret")]):
            with pytest.raises(fl.FlightUnauthenticatedError):
                c.do_get(fl.Ticket(b"table 10 10"), fl.FlightCallOptions(headers=headers)).read_all()


# ---- brant's client


class Token(fl.ServerMiddlewareFactory):
    def start_call(self, info, headers):
        if headers.get("authorization") != ["Bearer s3cret"]:
            raise fl.FlightUnauthenticatedError("bad token")


class Py(fl.FlightServerBase):
    def do_get(self, context, ticket):
        kind, n, each = ticket.ticket.decode().split()
        n, each = int(n), int(each)
        if kind == "missing":
            raise KeyError("no table")
        batches = (rows(i, min(each, n - i)) for i in range(0, n, each))
        if kind == "break":
            def broken():
                yield rows(0, 5)
                raise ValueError("broken: 30% läuft")
            return fl.GeneratorStream(SCHEMA, broken())
        return fl.GeneratorStream(SCHEMA, ((b, b"app") for b in batches))

    def do_action(self, context, action):
        if action.type == "count":
            for i in range(int(action.body.to_pybytes())):
                yield str(i).encode()
        else:
            yield action.body


@pytest.fixture(scope="module")
def py():
    with Py("grpc://127.0.0.1:0") as s:
        yield s


def brant(port, *args, token="-"):
    p = subprocess.run([BUILD / "interop-flight_client", f"tcp://127.0.0.1:{port}", token, *args], stdout=subprocess.PIPE, timeout=60)
    return json.loads(p.stdout)


@pytest.mark.parametrize("n,each", [(0, 1), (1, 1), (1000, 7), (300000, 100000)])
def test_brant_reads_pyarrow(py, n, each):
    r = brant(py.port, "get", f"table {n} {each}")
    assert r["code"] == "OK", r
    assert (r["rows"], r["batches"], r["sum"]) == (n, -(-n // each), n * (n - 1) // 2)
    assert r["nulls"] == len(range(0, n, 7))
    assert r["text_bytes"] == sum(len(f"row {i}") for i in range(n))
    assert r["app_bytes"] == 3 * r["batches"]


def test_brant_action_of_pyarrow(py):
    assert brant(py.port, "action", "count", "300") | {"message": ""} == {
        "batches": 0, "rows": 0, "sum": 0, "nulls": 0, "text_bytes": 0, "app_bytes": 0, "results": 300, "last": "299",
        "code": "OK", "message": ""}
    assert brant(py.port, "action", "echo", "hello")["last"] == "hello"


def test_brant_errors_of_pyarrow(py):
    r = brant(py.port, "get", "missing 1 1")
    assert r["code"] != "OK" and "no table" in r["message"]
    r = brant(py.port, "get", "break 1 1")
    assert r["code"] == "INVALID" and "broken: 30% läuft" in r["message"] and r["rows"] == 5


def test_brant_token_for_pyarrow():
    with Py("grpc://127.0.0.1:0", middleware={"t": Token()}) as s:
        assert brant(s.port, "get", "table 10 10", token="s3cret")["rows"] == 10
        r = brant(s.port, "get", "table 10 10", token="other")
        assert r["code"] == "PERMISSION" and "bad token" in r["message"]
