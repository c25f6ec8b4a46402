# SPDX-License-Identifier: Apache-2.0
"""url_download against a server of the test's own: slow, failing, redirecting, truncated, too long."""
import http.server
import os
import socket
import threading
import time

import pytest

import brantlib

os.environ["no_proxy"] = "127.0.0.1"  # before any session, for its processes too


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.seen, self.now, self.most = threading.Lock(), {}, 0, 0
        self.release = threading.Event()
        self.entered = threading.Event()

    def handle_error(self, request, client_address):
        pass  # clients that go away are what some tests are about


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, body, status=200, headers=(), length=None):
        self.send_response(status)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        s = self.server
        with s.lock:
            s.seen[self.path] = turn = s.seen.get(self.path, 0) + 1
            s.now += 1
            s.most = max(s.most, s.now)
        try:
            kind, _, rest = self.path[1:].partition("/")
            if kind == "ok":
                self.answer(f"body {rest}".encode())
            elif kind == "empty":
                self.answer(b"")
            elif kind == "flaky":  # well at the third try
                self.answer(b"at last") if turn > 2 else self.answer(b"busy", 503)
            elif kind == "status":
                self.answer(b"no", int(rest))
            elif kind == "to":
                self.answer(b"", 302, [("Location", {"ok": "/ok/moved", "file": "file:///etc/hostname", "loop": "/to/loop"}[rest])])
            elif kind == "half":
                self.answer(b"half", length=8)
                self.close_connection = True
            elif kind == "long":
                self.answer(b"x" * int(rest))
            elif kind == "slow":
                s.entered.set()
                s.release.wait(60)
                self.answer(b"slow")
        finally:
            with s.lock:
                s.now -= 1


@pytest.fixture
def server():
    s = Server()
    thread = threading.Thread(target=s.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    s.url = f"http://127.0.0.1:{s.server_address[1]}"
    yield s
    s.release.set()
    s.shutdown()
    thread.join()
    s.server_close()


@pytest.fixture(scope="module")
def local():
    with brantlib.Session(workers=1, threads=1, distribute="never") as s:
        yield s


def one(session, url, options=""):
    return session.run(f"SELECT url_download('{url}'{options}) AS x")[0]["x"][0].as_py()


def test_bodies_redirects_and_nulls(local, server):
    assert one(local, server.url + "/ok/1") == b"body 1"
    assert one(local, server.url + "/empty") == b""
    assert one(local, server.url + "/to/ok") == b"body moved"
    assert local.run("SELECT url_download(NULL) AS x")[0]["x"][0].as_py() is None


def test_what_fails_says_why(local, server):
    for path, options, why in (("/status/404", "", "HTTP status 404"), ("/status/503", ", retries := 1", "HTTP status 503"),
                               ("/half", ", retries := 0", "partial"), ("/to/loop", "", "redirect"), ("/to/file", "", "[Pp]rotocol"),
                               ("/long/1001", ", max_bytes := 1000", "more than 1000 bytes"), ("/slow", ", timeout_ms := 200, retries := 0", "[Tt]imeout")):
        with pytest.raises(brantlib.BrantError, match=f"{server.url}{path}.*{why}"):
            one(local, server.url + path, options)
        assert one(local, server.url + path, options + ", on_error := 'null'") is None
    assert server.seen["/status/404"] == 2 and server.seen["/status/503"] == 4  # once each; twice each
    assert one(local, server.url + "/long/1000", ", max_bytes := 1000") == b"x" * 1000
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))  # nobody listens
        with pytest.raises(brantlib.BrantError, match="connect"):
            one(local, f"http://127.0.0.1:{s.getsockname()[1]}/", ", retries := 1")


def test_tries_again(local, server):
    assert one(local, server.url + "/flaky/a") == b"at last"
    assert server.seen["/flaky/a"] == 3
    assert one(local, server.url + "/flaky/b", ", retries := 1, on_error := 'null'") is None


def test_only_http(local):
    for url in ("file:///etc/hostname", "/etc/hostname", "ftp://127.0.0.1/x", "gopher://127.0.0.1/", ""):
        with pytest.raises(brantlib.BrantError, match="only http:// and https://"):
            one(local, url)
    for options in ("on_error := 'x'", "timeout_ms := 0", "max_connections := 65", "retries := -1", "max_bytes := 0"):
        with pytest.raises(brantlib.BrantError, match="on_error is 'raise' or 'null'"):
            one(local, "http://127.0.0.1/", ", " + options)


def test_connections_are_bounded(local, server):
    got = local.run(f"SELECT i, url_download('{server.url}/ok/' || i, max_connections := 5) AS x FROM range(300) r(i)")[0].to_pylist()
    assert all(r["x"] == f"body {r['i']}".encode() for r in got) and len(got) == 300
    assert 1 <= server.most <= 5 and len(server.seen) == 300


def test_on_workers_and_in_the_plan(workers, server, tmp_path):
    sql = f"SELECT count(*)::BIGINT AS n, count(DISTINCT b)::BIGINT AS d FROM (SELECT url_download('{server.url}/ok/' || i) AS b FROM range(50) r(i))"
    assert workers.run(sql)[0].to_pylist() == [{"n": 50, "d": 50}]
    assert len(server.seen) == 50
    workers.run(f"COPY (SELECT i FROM range(10) r(i)) TO '{tmp_path}/a.parquet' (FORMAT parquet)")
    bodies = f"SELECT url_download('{server.url}/never/' || i) AS b FROM '{tmp_path}/a.parquet'"
    text = workers.explain(f"SELECT b, count(*) FROM ({bodies}) GROUP BY b", False, False)
    assert "indeterminate" in text and len(server.seen) == 50
    assert workers.run(f"SELECT url_download('{server.url}/never') AS x FROM '{tmp_path}/a.parquet' LIMIT 0")[0].num_rows == 0
    assert len(server.seen) == 50  # a constant argument is no reason to ask while planning


def test_cancel_while_a_server_is_silent(local, server):
    query = local.submit(f"SELECT url_download('{server.url}/slow', timeout_ms := 60000) AS x")
    ended = {}

    def read():
        try:
            query.table()
        except brantlib.BrantError as e:
            ended["code"] = e.code
        ended["at"] = time.monotonic()
    thread = threading.Thread(target=read)
    thread.start()
    assert server.entered.wait(30)
    at = time.monotonic()
    query.cancel()
    thread.join(30)
    assert ended["code"] == "CANCELLED" and ended["at"] - at < 10  # the server says nothing for 60 s
    at = time.monotonic()
    query.free()  # waits for DuckDB's thread
    assert time.monotonic() - at < 10
