# SPDX-License-Identifier: Apache-2.0
"""Functions that take long for each row, over small files: the rows are spread over all slots, in their order, whatever holds them."""
import gzip
import http.server
import json
import os
import threading

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import brantlib

os.environ["no_proxy"] = "127.0.0.1"  # before any session, for its processes too
ROWS = 60
TEXTS = 4000


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize, disable_nagle_algorithm = -1, True  # an answer is one packet

    def log_message(self, *args):
        pass

    def do_GET(self):
        body = self.path[1:].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128


@pytest.fixture(scope="module")
def url():
    s = Server(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=s.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{s.server_address[1]}"
    s.shutdown()
    thread.join()
    s.server_close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, url):
    d = tmp_path_factory.mktemp("costly")
    links = [None if i % 11 == 3 else f"{url}/x{i}" for i in range(ROWS)]
    table = pa.table({"i": range(ROWS), "u": links})
    pq.write_table(table, d / "links.parquet")
    lines = "i,u\n" + "".join(f"{i},{u or ''}\n" for i, u in enumerate(links))
    (d / "links.csv").write_text(lines)
    (d / "links.csv.gz").write_bytes(gzip.compress(lines.encode()))
    rows = [{"i": i, "u": u} for i, u in enumerate(links)]
    (d / "links.ndjson").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (d / "links.json").write_text(json.dumps(rows))
    (d / "none.csv").write_text("i,u\n")
    (d / "one.csv").write_text(f"i,u\n0,{url}/x0\n")
    (d / "equal.csv").write_text("i,u\n" + f"7,{url}/x7\n" * ROWS)
    texts = pa.table({"i": range(TEXTS), "t": [None if i % 13 == 0 else f"w{i % 7} w{i % 5} w{i % 3} end {i}" for i in range(TEXTS)]})
    pq.write_table(texts, d / "texts.parquet")
    (d / "texts.csv").write_text("i,t\n" + "".join(f"{r['i']},{r['t'] or ''}\n" for r in texts.to_pylist()))
    return d


@pytest.fixture(scope="module", params=["staged", "eager"])
def session(request):
    with brantlib.Session(workers=3, threads=1, distribute="always", mode=request.param) as s:
        s.register("links", pa.table({"i": pa.array(range(ROWS), pa.int64()), "u": [f"x{i}" for i in range(ROWS)]}))
        yield s


def tasks(session, sql):
    """Of the stage that calls the function, as many as there are with it."""
    stages = json.loads(session.explain(sql, json=True))["stages"]
    return [s["tasks"] for s in stages if '"__url_download"(' in s["sql"] or '"minhash"(' in s["sql"] or '"__strip_text"(' in s["sql"]]


SOURCES = ["'{}/links.parquet'", "'{}/links.csv'", "read_csv('{}/links.csv.gz')", "'{}/links.ndjson'", "read_json('{}/links.json')"]


@pytest.mark.parametrize("source", SOURCES)
def test_a_small_file_of_links(session, folder, source):
    source = source.format(folder)
    sql = f"SELECT i, url_download(u)::VARCHAR AS x FROM {source}"
    want = [(i, None if i % 11 == 3 else f"x{i}") for i in range(ROWS)]
    assert max(tasks(session, sql)) >= 3
    got, _ = session.run(sql)
    assert list(zip(got["i"].to_pylist(), got["x"].to_pylist())) == want  # a scan's rows come in their order
    for more, rows in ((f"SELECT i, url_download(u)::VARCHAR AS x FROM {source} ORDER BY i DESC LIMIT 20", want[:-21:-1]),
                       (f"SELECT i, url_download(u)::VARCHAR AS x FROM (SELECT * FROM {source} ORDER BY i DESC)", want[::-1]),
                       (f"SELECT i, x FROM (SELECT i, url_download(u)::VARCHAR AS x FROM {source}) WHERE x > 'x3' ORDER BY i",
                        [w for w in want if w[1] and w[1] > "x3"])):
        got, _ = session.run(more)
        assert list(zip(got["i"].to_pylist(), got["x"].to_pylist())) == rows, more
    got, _ = session.run(f"SELECT count(url_download(u))::BIGINT AS n FROM {source}")
    assert got.to_pylist() == [{"n": sum(w[1] is not None for w in want)}]


def test_rows_that_one_task_has(session, folder, url):
    values = ", ".join(f"({i})" for i in range(ROWS))
    for rows in (f"(VALUES {values}) v(i)", f"range({ROWS}) v(i)", f"(SELECT i FROM '{folder}/links.csv' ORDER BY i LIMIT {ROWS}) v"):
        sql = f"SELECT i, url_download('{url}/y' || i)::VARCHAR AS x FROM {rows}"
        assert max(tasks(session, sql)) >= 3, sql
        assert sorted(session.run(sql)[0]["x"].to_pylist()) == sorted(f"y{i}" for i in range(ROWS))
    sql = f"SELECT i, url_download('{url}/' || u)::VARCHAR AS x FROM links"  # a table of this process, in one part
    assert max(tasks(session, sql)) >= 3
    assert session.run(sql)[0]["x"].to_pylist() == [f"x{i}" for i in range(ROWS)]


def test_edges(session, folder, url):
    for name, want in (("none", []), ("one", ["x0"]), ("equal", ["x7"] * ROWS)):
        got, _ = session.run(f"SELECT url_download(u)::VARCHAR AS x FROM read_csv('{folder}/{name}.csv', types = {{'u': 'VARCHAR'}})")
        assert got["x"].to_pylist() == want
    got, _ = session.run(f"SELECT DISTINCT url_download(u)::VARCHAR AS x FROM '{folder}/equal.csv'")
    assert got["x"].to_pylist() == ["x7"]


@pytest.mark.parametrize("name", ["texts.parquet", "texts.csv"])
def test_signatures_of_few_rows_stay_together(session, folder, name):
    many = f"SELECT i, minhash(t, 16, 2, 1) AS m FROM '{folder}/{name}'"
    few = f"SELECT i, minhash(u, 16, 2, 1) AS m FROM '{folder}/links{name[5:]}'"
    assert tasks(session, many)[0] >= 3 and tasks(session, few) == [1]
    with brantlib.Session(workers=1, distribute="never") as here:
        for sql in (many, few, f"SELECT normalize_text(t) AS n, count(*) AS c FROM '{folder}/{name}' GROUP BY ALL ORDER BY ALL",
                    f"SELECT b, count(*) FROM (SELECT unnest(minhash_bands(minhash(t, 16, 2, 1), 4, 4)) AS b FROM '{folder}/{name}') GROUP BY 1 ORDER BY 1"):
            assert session.run(sql)[0].to_pylist() == here.run(sql)[0].to_pylist(), sql


def test_after_an_exchange(session, folder):
    """Few bytes are not put together where each row takes long."""
    texts = f"(SELECT i, i % 40 AS k, t FROM '{folder}/texts.parquet')"
    sql = f"SELECT k, minhash(string_agg(t, ' ' ORDER BY i), 16, 2, 1) AS m FROM {texts} GROUP BY k ORDER BY k"
    with brantlib.Session(workers=1, distribute="never") as here:
        assert session.run(sql)[0].to_pylist() == here.run(sql)[0].to_pylist()


def test_downloads_go_to_workers(folder):
    """However small their file is; a handful, and what is only read, stay here."""
    with brantlib.Session(workers=2, threads=1, distribute="auto") as s:
        (folder / "many.csv").write_text((folder / "links.csv").read_text() + (folder / "links.csv").read_text().split("\n", 1)[1] * 3)
        got, stats = s.run(f"SELECT count(*) AS n FROM (SELECT url_download(u) AS x FROM '{folder}/many.csv') WHERE x IS NOT NULL")
        want = duckdb.connect().execute(f"SELECT count(u) FROM '{folder}/many.csv'").fetchall()[0][0]
        assert got["n"].to_pylist() == [want] and stats.distributed
        assert not s.run(f"SELECT count(url_download(u)) FROM '{folder}/one.csv'")[1].distributed
        assert not s.run(f"SELECT count(u) FROM '{folder}/many.csv'")[1].distributed
