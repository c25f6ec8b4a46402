# SPDX-License-Identifier: Apache-2.0
"""read_warc: every record once, however files are cut; damage; what HTTP wraps; the plan."""
import gzip
import json
import random
import zlib

import pytest

import brantlib


def record(n, content, kind="response", content_type="application/http; msgtype=response", extra=""):
    head = (f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{n:08d}>\r\nWARC-Target-URI: http://example.org/{n}\r\n"
            f"WARC-Date: 2024-02-29T12:34:{n % 60:02d}Z\r\n{extra}Content-Type: {content_type}\r\nContent-Length: {len(content)}\r\n\r\n")
    return head.encode() + content + b"\r\n\r\n"


def page(body, status=200, extra=""):
    return f"HTTP/1.1 {status} OK\r\nContent-Type: text/html\r\n{extra}\r\n".encode() + body


def chunked(body, size=7):
    parts = [body[i:i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def pages(count, seed=7):
    draw = random.Random(seed)
    return [record(i, page(bytes(draw.choices(b"abcdefghij klmnop<>", k=draw.randrange(10, 30000))))) for i in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("warc")
    all_records = pages(600)
    for k in range(3):
        part = all_records[k * 200:k * 200 + 200]
        (path / f"gz{k}.warc.gz").write_bytes(b"".join(gzip.compress(r, 1) for r in part))
        (path / f"plain{k}.warc").write_bytes(b"".join(part))
    return path


@pytest.fixture(scope="module")
def local():
    with brantlib.Session(workers=1, threads=2, distribute="never") as s:
        yield s


@pytest.fixture(scope="module")
def cutting():
    """Splits of 64 KiB, over three workers."""
    with brantlib.Session(workers=3, threads=1, distribute="always", settings={"split_bytes": "65536"}) as s:
        yield s


def rows(session, sql):
    return [tuple(r.values()) for r in session.run(sql)[0].to_pylist()]


def one(session, path, columns, tail=""):
    return rows(session, f"SELECT {columns} FROM read_warc('{path}') {tail}")


SUM = "count(*)::BIGINT, count(DISTINCT record_id)::BIGINT, " \
      "sum(hash(content) % 1000003)::BIGINT, sum(octet_length(payload))::BIGINT, sum(\"offset\" % 1009)::BIGINT"


@pytest.mark.parametrize("kind", ["gz*.warc.gz", "plain*.warc"])
def test_cut_files_hold_each_record_once(local, cutting, folder, kind):
    sql = f"SELECT {SUM} FROM read_warc('{folder}/{kind}')"
    want = rows(local, sql)
    assert want[0][:2] == (600, 600)
    assert rows(cutting, sql) == want
    plan = json.loads(cutting.explain(sql, False, True))
    scans = [s for st in plan["stages"] for s in st["scans"]]
    assert [s["kind"] for s in scans] == ["warc"] and scans[0]["split"]
    tasks = max(st["tasks"] for st in plan["stages"])
    assert tasks > 15, plan


def test_columns(local, tmp_path):
    body = "<p>Grüße</p>".encode()
    records = [
        record(1, page(body)), record(2, page(chunked(body), extra="Transfer-Encoding: chunked\r\n")),
        record(3, page(gzip.compress(body), extra="Content-Encoding: gzip\r\n")),
        record(4, page(chunked(gzip.compress(body)), 404, extra="Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n")),
        record(5, page(zlib.compress(body), extra="content-encoding:deflate\r\n")),
        record(6, page(zlib.compress(body)[2:-4], extra="Content-Encoding: deflate\r\n")),
        record(7, page(body, extra="Transfer-Encoding: chunked\r\nContent-Encoding: br\r\n")),
        record(8, b"a: b\r\n", "warcinfo", "application/warc-fields", "X-More: one\r\nx-more: two\r\n  three\r\n"),
        record(9, b"", "metadata", "text/plain")]
    (tmp_path / "a.warc").write_bytes(b"".join(records))
    got = one(local, tmp_path / "a.warc", "payload, http_status, http_content_type, type, target_uri, date::VARCHAR", "ORDER BY \"offset\"")
    assert [g[0] for g in got] == [body] * 7 + [b"a: b\r\n", b""]
    assert [g[1] for g in got] == [200, 200, 200, 404, 200, 200, 200, None, None]
    assert got[0][2:] == ("text/html", "response", "http://example.org/1", "2024-02-29 12:34:01") and got[7][2] is None
    assert one(local, tmp_path / "a.warc", "warc_headers['X-More'] AS x", "WHERE type = 'warcinfo'")[0][0] == "one, two    three"
    assert one(local, tmp_path / "a.warc", "content, content_length", "WHERE content_length < 10 ORDER BY \"offset\"") == [(b"a: b\r\n", 6), (b"", 0)]
    assert one(local, tmp_path / "a.warc", "count(*)::BIGINT") == [(9,)]
    offsets = [g[0] for g in one(local, tmp_path / "a.warc", "\"offset\"", "ORDER BY 1")]
    assert offsets == [sum(map(len, records[:i])) for i in range(9)]


def test_one_member_for_all_and_members_that_end_inside(local, cutting, tmp_path):
    data = b"".join(pages(50))
    (tmp_path / "one.warc.gz").write_bytes(gzip.compress(data))
    pieces = [data[i:i + 10000] for i in range(0, len(data), 10000)]
    (tmp_path / "pieces.warc.gz").write_bytes(b"".join(gzip.compress(p) for p in pieces))
    (tmp_path / "plain.warc").write_bytes(data)
    want = rows(local, f"SELECT count(*)::BIGINT, sum(hash(content) % 1000003)::BIGINT FROM read_warc('{tmp_path}/plain.warc')")
    for name in ("one", "pieces"):
        sql = f"SELECT count(*)::BIGINT, sum(hash(content) % 1000003)::BIGINT FROM read_warc('{tmp_path}/{name}.warc.gz')"
        assert rows(local, sql) == want and rows(cutting, sql) == want


def test_an_archive_inside_of_an_archive_is_content(local, cutting, tmp_path):
    inner = b"".join(gzip.compress(r) for r in pages(30, 1))
    flat = b"".join(pages(30, 2))
    records = [record(1000 + i, c, "resource", "application/octet-stream") for i, c in enumerate([inner, flat] * 4)]
    (tmp_path / "a.warc").write_bytes(b"".join(records))
    (tmp_path / "a.warc.gz").write_bytes(b"".join(gzip.compress(r, 0) for r in records))  # stored: the inner bytes stand there as they are
    for name in ("a.warc", "a.warc.gz"):
        sql = f"SELECT record_id FROM read_warc('{tmp_path}/{name}') ORDER BY 1"
        assert rows(cutting, sql) == rows(local, sql) == [(f"<urn:uuid:{1000 + i:08d}>",) for i in range(8)]


def damaged(tmp_path):
    members = [gzip.compress(r) for r in pages(40)]
    at = sum(map(len, members[:20]))
    data = bytearray(b"".join(members))
    data[at + len(members[20]) // 2] ^= 0xFF
    (tmp_path / "bad.warc.gz").write_bytes(data)
    return at


def test_a_damaged_member(local, cutting, tmp_path):
    at, name = damaged(tmp_path), tmp_path / "bad.warc.gz"
    for session in (local, cutting):
        with pytest.raises(brantlib.BrantError, match=f"bad.warc.gz: the WARC record at byte {at} is in a damaged gzip member"):
            one(session, name, "sum(octet_length(content))::BIGINT")
        got = rows(session, f"SELECT record_id FROM read_warc('{name}', on_error := 'skip') ORDER BY 1")
        assert got == [(f"<urn:uuid:{i:08d}>",) for i in range(40) if i != 20]
        got = rows(session, f"SELECT \"offset\", file, type FROM read_warc('{name}', on_error := 'report') WHERE error IS NOT NULL")
        assert got == [(at, str(name), None)]
    with pytest.raises(brantlib.BrantError, match="on_error is 'raise', 'skip' or 'report', not 'no'"):
        rows(local, f"SELECT 1 FROM read_warc('{name}', on_error := 'no')")


@pytest.mark.parametrize("compress", [True, False])
def test_truncated_files(local, tmp_path, compress):
    records = pages(5)
    data = b"".join(gzip.compress(r) if compress else r for r in records)
    last = len(gzip.compress(records[4]) if compress else records[4])
    for cut in (5, 100, last - 3):
        (tmp_path / "t").write_bytes(data[:len(data) - cut])
        if not compress and cut == 5:
            (tmp_path / "t").write_bytes(data[:len(data) - 4 - cut])
        with pytest.raises(brantlib.BrantError, match="is truncated: the file ends inside of"):
            one(local, tmp_path / "t", "sum(octet_length(content))::BIGINT")
        assert len(rows(local, f"SELECT type FROM read_warc('{tmp_path}/t', on_error := 'skip')")) == 4


def test_what_is_no_archive(local, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert one(local, tmp_path / "empty", "count(*)::BIGINT") == [(0,)]
    (tmp_path / "text").write_bytes(b"hello, this is no archive")
    with pytest.raises(brantlib.BrantError, match="does not begin with WARC/"):
        one(local, tmp_path / "text", "count(*)")
    (tmp_path / "length").write_bytes(b"WARC/1.0\r\nWARC-Type: x\r\n\r\n")
    with pytest.raises(brantlib.BrantError, match="has no Content-Length"):
        one(local, tmp_path / "length", "count(*)")
    with pytest.raises(brantlib.BrantError, match="cannot open|cannot read"):
        one(local, tmp_path / "missing", "count(*)")
    with pytest.raises(brantlib.BrantError, match="no file matches"):
        one(local, tmp_path / "missing*", "count(*)")
    with pytest.raises(brantlib.BrantError, match="download it first"):
        one(local, "http://example.org/a.warc", "count(*)")


def test_lists_ranges_and_joins(local, cutting, folder):
    files = f"['{folder}/gz0.warc.gz', '{folder}/plain1.warc']"
    sql = f"SELECT count(*)::BIGINT FROM read_warc({files})"
    assert rows(local, sql) == rows(cutting, sql) == [(400,)]
    cuts = [c for c, in rows(local, f"SELECT \"offset\" FROM warc_cuts('{folder}/gz0.warc.gz', 4)")]
    assert len(cuts) == 3
    borders = [0, *cuts, 1 << 40]
    counts = [rows(s, f"SELECT count(*)::BIGINT FROM read_warc('{folder}/gz0.warc.gz', first_byte := {a}, last_byte := {b - 1})")[0][0]
              for s in (local, cutting) for a, b in zip(borders, borders[1:])]
    assert sum(counts) == 400 and counts[:4] == counts[4:]
    both = f"SELECT count(*)::BIGINT FROM read_warc('{folder}/gz*') a JOIN read_warc('{folder}/plain*') b USING (record_id) WHERE a.content = b.content"
    assert rows(local, both) == rows(cutting, both) == [(600,)]


def test_a_file_that_changes_meanwhile(tmp_path):
    """The files are pinned: what is appended while tasks read them is an error that names the file, not rows of two states."""
    hello = b"WARC/1.0\r\nWARC-Type: resource\r\nWARC-Record-ID: <%d>\r\nWARC-Date: 2024-01-01T00:00:00Z\r\nContent-Length: 5\r\n\r\nhello\r\n\r\n"
    for name in "ab":
        (tmp_path / f"{name}.warc.gz").write_bytes(b"".join(gzip.compress(hello % i, 1) for i in range(3000)))
    with brantlib.Session(workers=2, threads=1, distribute="always") as s:
        sql = f"SELECT count(*) AS n FROM read_warc('{tmp_path}/*.warc.gz')"
        assert s.run(sql)[0].to_pylist() == [{"n": 6000}]
        q = s.submit(sql)
        with open(tmp_path / "b.warc.gz", "ab") as f:
            f.write(gzip.compress(hello % 1, 1))
        with pytest.raises(Exception, match="b.warc.gz was changed while the query ran"):
            q.reader().read_all()
        q.free()
        assert s.run(sql)[0].to_pylist() == [{"n": 6001}]
