#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From a web archive to text: WARC, HTML, text, filters by language and quality, Parquet; in SQL.

    python examples/warc_to_text.py                     # real archives, out of the source of the package pywb (by pip)
    python examples/warc_to_text.py --files 'crawl/*.warc.gz' --out text/
    python examples/warc_to_text.py --copies 200        # larger: each page again under another name, its words shuffled

Prints how many pages each filter leaves, and the seconds. The result is OUT/*.parquet: url, date, words, english,
text; all pages with their text are in OUT-pages.
"""
import argparse
import gzip
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

PYWB = "pywb==2.10.0"
LEAST_WORDS, LEAST_ENGLISH, LONGEST_WORD = 50, 0.12, 12
ENGLISH = "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which".split()


def archives(folder):
    """The .warc.gz files of pywb's sample archive."""
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(folder), PYWB], check=True)
    with tarfile.open(next(folder.glob("pywb-*.tar.gz"))) as tar:
        for member in tar.getmembers():
            name = pathlib.PurePosixPath(member.name)
            if "sample_archive/warcs/" in member.name and member.isfile() and name.name.endswith(".warc.gz"):
                (folder / name.name).write_bytes(tar.extractfile(member).read())
    return f"{folder}/*.warc.gz"


def enlarge(session, files, folder, copies):
    """More archives: HTML pages of the given ones with their words in another order, in members of their own."""
    draw = random.Random(1)
    pages = session.execute("SELECT target_uri AS url, payload FROM read_warc(" + literal(files) + ") WHERE type = 'response' AND http_status = 200 "
                            "AND http_content_type LIKE 'text/html%'").arrow().to_pylist()
    for copy in range(copies):
        with open(folder / f"copy-{copy:05d}.warc.gz", "wb") as out:
            for n, page in enumerate(pages):
                tokens = re.split(rb"(<[^>]*>|\s+)", page["payload"])
                words = [i for i, t in enumerate(tokens) if t and not t.startswith(b"<") and not t.isspace()]
                swapped = words[:]
                draw.shuffle(swapped)
                body = list(tokens)
                for i, j in zip(words, swapped):
                    body[i] = tokens[j]
                http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + b"".join(body)
                out.write(gzip.compress((f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:copy:{copy}:{n}>\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
                                         f"WARC-Target-URI: {page['url']}?copy={copy}\r\nContent-Type: application/http; msgtype=response\r\n"
                                         f"Content-Length: {len(http)}\r\n\r\n").encode() + http + b"\r\n\r\n", 6, mtime=0))
    return f"{folder}/copy-*.warc.gz"


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def pages_sql(files):
    """HTML pages with their text: without scripts, styles and comments, tags as spaces, the usual entities as what they stand for."""
    html = "try(decode(payload))"
    cut = f"regexp_replace({html}, '(?is)<(script|style|noscript|head)\\b.*?</(script|style|noscript|head)\\s*>|<!--.*?-->', ' ', 'g')"
    text = f"regexp_replace({cut}, '(?s)<[^>]*>', ' ', 'g')"
    for entity, char in (("&nbsp;", " "), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#39;", "'"), ("&amp;", "&")):
        text = f"replace({text}, '{entity}', {literal(char)})"
    text = f"normalize_text({text}, lowercase := false, remove_punctuation := false)"
    return (f"SELECT target_uri AS url, date, {text} AS text FROM read_warc({literal(files)}, on_error := 'skip') WHERE type = 'response' "
            f"AND http_status = 200 AND http_content_type ILIKE 'text/html%' AND try(decode(payload)) IS NOT NULL")


def measured_sql(pages):
    """Words, the share of the commonest English ones, the length of a word."""
    words = "string_split(normalize_text(text), ' ')"
    common = "[" + ", ".join(map(literal, ENGLISH)) + "]"
    return (f"SELECT url, date, text, len(w)::BIGINT AS words, "
            f"len(list_filter(w, lambda x: list_contains({common}, x))) / greatest(len(w), 1) AS english, "
            f"strlen(text) / greatest(len(w), 1) AS bytes_a_word FROM (SELECT *, {words} AS w FROM ({pages}))")


def run(session, files, out):
    """(documents kept, their words). The text of the pages is written first: the filters would make it again for each condition."""
    good = f"words >= {LEAST_WORDS} AND english >= {LEAST_ENGLISH} AND bytes_a_word <= {LONGEST_WORD}"
    session.execute(f"COPY ({pages_sql(files)}) TO '{out}-pages/' (FORMAT parquet)").arrow()
    measured = measured_sql(f"SELECT * FROM '{out}-pages/*.parquet'")
    session.execute(f"COPY (SELECT url, date, words, english, text FROM ({measured}) WHERE {good}) "
                    f"TO '{out}/' (FORMAT parquet)").arrow()
    result = session.execute(f"SELECT count(*)::BIGINT AS n, coalesce(sum(words), 0)::BIGINT AS w FROM '{out}/*.parquet'").arrow()
    return tuple(c[0].as_py() for c in result.columns)


def counts(session, files, out):
    """How many records, pages, long enough, English."""
    measured = measured_sql(f"SELECT * FROM '{out}-pages/*.parquet'")
    records = session.execute(f"SELECT count(*)::BIGINT AS n FROM read_warc({literal(files)}, on_error := 'skip')").arrow()["n"][0].as_py()
    row = session.execute(f"SELECT count(*)::BIGINT AS pages, "
                          f"count(*) FILTER (words >= {LEAST_WORDS})::BIGINT AS long, "
                          f"count(*) FILTER (words >= {LEAST_WORDS} AND english >= {LEAST_ENGLISH})::BIGINT AS english "
                          f"FROM ({measured})").arrow().to_pylist()[0]
    return {"records": records, **row}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", help="a name or a pattern of WARC files")
    parser.add_argument("--out", help="a directory for the result")
    parser.add_argument("--copies", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    import brant
    folder = pathlib.Path(tempfile.mkdtemp(prefix="brant-warc-"))
    try:
        files = options.files or archives(folder)
        out = options.out or folder / "text"
        with brant.Session(workers=options.workers, threads=1, progress=False) as session:
            if options.copies:
                files = enlarge(session, files, folder, options.copies)
            import glob
            size = sum(pathlib.Path(f).stat().st_size for f in glob.glob(files))
            started = time.monotonic()
            kept, words = run(session, files, out)
            seconds = time.monotonic() - started
            for name, n in counts(session, files, out).items():
                print(f"{name:10s}{n:10d}")
            print(f"{'kept':10s}{kept:10d}   {words} words; {size / 1e6:.1f} MB of archives in {seconds:.1f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
