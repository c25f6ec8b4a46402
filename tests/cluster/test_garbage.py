# SPDX-License-Identifier: Apache-2.0
"""Garbage, silence and strangers on every port: the running query and the next one give the right rows."""
import contextlib
import os
import pathlib
import random
import socket
import ssl
import struct
import threading

import brantlib
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from harness import children, wait_for

SECRET = "a-secret-of-this-test"
QUERY = "select l_suppkey % 7 as k, count(*) as n, sum(l_quantity) as q from '{}/lineitem/*.parquet' group by all order by all"


def listening(pid):
    """TCP ports that a process listens on."""
    inodes = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(fd)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    ports = []
    for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        f = line.split()
        if f[3] == "0A" and f[9] in inodes:
            ports.append(int(f[1].split(":")[1], 16))
    return ports


class Cluster:
    def __init__(self, box, small):
        self.events, others = [], set(listening(os.getpid()))
        self.session = brantlib.Session(workers=2, memory=256 << 20, temp_dir=box.temp, secret=SECRET)
        box.sessions.append(self.session)
        self.session.subscribe(self.events.append)
        self.query = QUERY.format(small)
        self.expected = self.run()
        self.workers = {e["worker"]: e for e in self.events if e["type"] == "worker_joined"}
        self.worker_ports = [int(e["uri"].rsplit(":", 1)[1]) for e in self.workers.values()]
        [self.coordinator_port] = set(listening(os.getpid())) - others
        self.ports = [self.coordinator_port, *self.worker_ports]
        self.sockets = [str(s) for s in box.temp.glob("*/s")]  # of the workers
        assert len(self.sockets) == 2

    def run(self):
        return self.session.run(self.query)[0].to_pylist()

    def types(self):
        return {e["type"] for e in self.events}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, small):
    import harness
    box = harness.Box(tmp_path_factory.mktemp("garbage"))
    os.environ["BRANT_TEST_MARK"] = box.mark
    c = Cluster(box, small)
    yield c
    c.session.close()
    del os.environ["BRANT_TEST_MARK"]
    box.assert_clean()
    box.close()


def connect(address):
    """A port, or the path of a Unix socket."""
    s = socket.socket(socket.AF_INET if isinstance(address, int) else socket.AF_UNIX)
    s.settimeout(2)
    s.connect(("127.0.0.1", address) if isinstance(address, int) else address)
    return s


def talk(address, data, read=True):
    """Sends, and reads until the other side closes or says nothing for 2 s."""
    with connect(address) as s:
        with contextlib.suppress(OSError):
            s.sendall(data)
            while read and s.recv(65536):
                pass


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload, length=None):
    n = len(payload) if length is None else length
    return struct.pack(">I", n)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def tls_hello():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    obj = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        obj.do_handshake()
    return outgoing.read()


SETTINGS = frame(4, 0, 0, b"")
GARBAGE = {
    "nothing": b"",
    "random": random.Random(7).randbytes(200_000),
    "zeros": bytes(100_000),
    "http1": b"GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: curl\r\n\r\n",
    "tls": tls_hello(),
    "half-preface": PREFACE[:10],
    "preface-then-random": PREFACE + random.Random(8).randbytes(100_000),
    "oversized-frame": PREFACE + SETTINGS + frame(0, 0, 1, b"x" * 1000, length=0xffffff),
    "oversized-headers": PREFACE + SETTINGS + frame(1, 0, 1, b"\x00" * 16000) + frame(9, 0, 1, b"\x00" * 16000) * 20,
    "ping-flood": PREFACE + SETTINGS + frame(6, 0, 0, b"12345678") * 20_000,
    "reset-flood": PREFACE + SETTINGS + b"".join(frame(3, 0, i, b"\0\0\0\x08") for i in range(1, 20_001, 2)),
    "window-overflow": PREFACE + SETTINGS + frame(8, 0, 0, struct.pack(">I", 0x7fffffff)) * 3,
}


def during_a_query(cluster, attack):
    """Attacks each port between the start and the end of a query, and checks this query and the next."""
    q = cluster.session.submit(cluster.query)
    threads = [threading.Thread(target=attack, args=(a,)) for a in cluster.ports + cluster.sockets]
    for t in threads:
        t.start()
    got = q.table().to_pylist()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    stats = q.stats()
    q.free()
    assert got == cluster.expected
    assert stats.workers_lost == 0 and stats.executors_lost == 0
    assert cluster.run() == cluster.expected
    assert "worker_lost" not in cluster.types()


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage(cluster, name):
    during_a_query(cluster, lambda address: talk(address, GARBAGE[name], read=name not in ("nothing", "half-preface")))


def test_a_hundred_silent_peers(cluster):
    """They connect and send nothing; they are closed after a time, and others get through meanwhile."""
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", p), timeout=5)) for p in cluster.ports for _ in range(100)]
        for s in silent[::2]:
            s.sendall(PREFACE[:7])
        during_a_query(cluster, lambda port: None)

        def closed(s):
            s.setblocking(False)
            try:
                return s.recv(65536) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

        wait_for(lambda: all(closed(s) for s in silent), 20, "silent connections are closed")


def test_oversized_message(cluster):
    """A gRPC message that says it has 1 GiB, on each port."""
    for port in cluster.ports:
        client = flight.connect(f"grpc://127.0.0.1:{port}")
        with pytest.raises(pa.ArrowException):
            list(client.do_action(flight.Action("join", b"x" * (20 << 20)), options(SECRET)))
        client.close()
    assert cluster.run() == cluster.expected


# ---- strangers that speak the protocol


def options(secret):
    return flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + secret.encode())] if secret else [], timeout=20)


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def join_request(secret, version=None, uri="tcp://127.0.0.1:1", slots=1):
    version = version or brantlib._load().brant_version().decode()
    return field(1, version) + field(2, uri) + field(4, "elsewhere") + field(5, slots) + field(6, 1) + field(7, 1 << 28) + \
        field(8, 1) + (field(9, secret) if secret else b"")


def join(cluster, body, secret):
    client = flight.connect(f"grpc://127.0.0.1:{cluster.coordinator_port}")
    try:
        return list(client.do_action(flight.Action("join", body), options(secret)))
    finally:
        client.close()


@pytest.mark.parametrize("secret", [None, "wrong", SECRET[:-1], SECRET + "x"])
def test_join_without_the_secret_is_refused(cluster, secret):
    with pytest.raises(flight.FlightUnauthenticatedError):
        join(cluster, join_request(secret), secret)
    with pytest.raises((flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError)):
        join(cluster, join_request(secret), SECRET)  # right token, wrong secret inside
    assert cluster.run() == cluster.expected
    assert sum(e["type"] == "worker_joined" for e in cluster.events) == 2


def test_report_without_the_secret_is_refused(cluster):
    client = flight.connect(f"grpc://127.0.0.1:{cluster.coordinator_port}")
    body = field(1, next(iter(cluster.workers))) + field(2, 1) + field(3, 1 << 40)
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(client.do_action(flight.Action("report", body), options(None)))
    client.close()
    assert cluster.run() == cluster.expected


def test_worker_of_another_version_is_refused(cluster):
    with pytest.raises(pa.ArrowException) as e:
        join(cluster, join_request(SECRET, version="0.0.1"), SECRET)
    assert "brant 0.0.1" in str(e.value) and "install the same version" in str(e.value), e.value
    assert cluster.run() == cluster.expected
    assert sum(e["type"] == "worker_joined" for e in cluster.events) == 2


@pytest.mark.parametrize("body", [b"", b"\xff" * 100, random.Random(9).randbytes(5000), field(1, "x" * 100000)])
def test_nonsense_join_is_refused(cluster, body):
    with pytest.raises(pa.ArrowException):
        join(cluster, body, SECRET)
    assert cluster.run() == cluster.expected


def ticket(worker, secret):
    ref = field(1, 1) + field(2, 0) + field(3, 1) + field(5, 1) + field(7, 1)
    return flight.Ticket(field(1, ref) + field(2, worker) + field(3, 1) + (field(4, secret) if secret else b""))


def test_data_without_the_secret_is_refused(cluster):
    for worker, e in cluster.workers.items():
        client = flight.connect("grpc://" + e["uri"].split("//")[1])
        for bearer, inside in ((None, SECRET), ("wrong", SECRET)):
            with pytest.raises(flight.FlightUnauthenticatedError):
                client.do_get(ticket(worker, inside), options(bearer)).read_all()
        with pytest.raises((flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError)):
            client.do_get(ticket(worker, "wrong"), options(SECRET)).read_all()
        with pytest.raises(pa.ArrowException) as other:  # a right secret opens only what a table of the coordinator names
            client.do_get(ticket(worker, SECRET), options(SECRET)).read_all()
        assert "secret" not in str(other.value)
        client.close()
    assert cluster.run() == cluster.expected


def test_stranger_that_joins_and_does_nothing(cluster):
    """It knows the secret, takes its tasks and never answers: it is given up when it's silent, and its tasks go to others."""
    client = flight.connect(f"grpc://127.0.0.1:{cluster.coordinator_port}")
    stream = client.do_action(flight.Action("join", join_request(SECRET, slots=4)), options(SECRET))
    next(stream)  # the welcome
    assert cluster.run() == cluster.expected
    assert any(e["type"] == "worker_lost" for e in cluster.events)
    client.close()
    assert cluster.run() == cluster.expected
    assert {e["pid"] for e in cluster.workers.values()} <= set(children(os.getpid(), "brant-worker")), "the real ones are still there"
