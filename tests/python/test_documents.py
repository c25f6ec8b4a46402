# SPDX-License-Identifier: Apache-2.0
"""The functions for documents as Python has them: read_warc, minhash, normalize_text, url_download (what they do: tests/sql, tests/unit)."""
import gzip
import http.server
import threading

import brant
import pytest
from brant import col
from brant import functions as f

WORDS = "the quick brown fox jumps over the lazy dog and runs into the deep dark wood"


def test_archives(session, tmp_path):
    for n in range(3):
        with open(tmp_path / f"{n}.warc.gz", "wb") as out:
            for i in range(50):
                body = f"HTTP/1.1 {404 if i % 10 == 9 else 200} OK\r\nContent-Type: text/html\r\n\r\n<p>{n}.{i} é".encode()
                head = (f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <{n}.{i}>\r\nWARC-Target-URI: http://a.example/{n}/{i}\r\n"
                        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(body)}\r\n\r\n")
                out.write(gzip.compress(head.encode() + body + b"\r\n\r\n"))
    records = brant.read_warc(tmp_path, session=session)
    good = records.where(col("http_status") == 200).select("target_uri", text=col("payload").call("decode"))
    assert good.count_rows() == 135
    assert good.where(col("target_uri").str.endswith("/2/7")).to_pylist() == [{"target_uri": "http://a.example/2/7", "text": "<p>2.7 é"}]
    data = bytearray((tmp_path / "1.warc.gz").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "1.warc.gz").write_bytes(data)
    with pytest.raises(brant.Error, match=r"1\.warc\.gz"):
        brant.read_warc(tmp_path, session=session).agg(col("payload").count()).item()
    assert 140 <= brant.read_warc(tmp_path, on_error="skip", session=session).select("payload").where(col("payload").not_null()).count_rows() < 150


def test_near_duplicates(session):
    texts = {"id": [1, 2, 3], "text": [WORDS, WORDS.upper().replace("dog", "dog,  ") + "!", "something else that has nothing of it at all in its few words"]}
    signed = brant.from_pydict(texts, session=session).select(
        "id", s=f.minhash(f.normalize_text(col("text"), lowercase=True, remove_punctuation=True, collapse_spaces=True), 64, 3, 1))
    pairs = signed.cross_join(signed, prefix="r_").where(col("id") < col("r_id")).select("id", "r_id", same=f.minhash_similarity(col("s"), col("r_s")))
    assert {(r["id"], r["r_id"]): r["same"] for r in pairs.to_pylist()} == {(1, 2): 1.0, (1, 3): 0.0, (2, 3): 0.0}
    assert signed.select(n=col("s").list.length()).distinct().item() == 64
    assert signed.select(b=f.minhash_bands(col("s"), 8, 8).list.length()).distinct().item() == 8


def test_downloads(session):
    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path.startswith("/ok") else 404)
            self.end_headers()
            self.wfile.write(self.path.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        at = f"http://127.0.0.1:{server.server_port}"
        urls = brant.from_pydict({"url": [f"{at}/ok/{i}" for i in range(20)] + [f"{at}/none", None]}, session=session)
        got = urls.select("url", body=f.url_download(col("url"), on_error="null", max_connections=4, retries=0)).to_pylist()
        assert {r["body"] for r in got} == {f"/ok/{i}".encode() for i in range(20)} | {None} and sum(r["body"] is None for r in got) == 2
        with pytest.raises(brant.Error, match="404"):
            urls.select(f.url_download(col("url"), retries=0)).collect()
    finally:
        server.shutdown()
        server.server_close()
