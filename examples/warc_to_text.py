#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From a web archive to text: WARC, HTML, text, language, filters of language and quality, Parquet.

    pip install lxml==6.1.3 py3langid==0.4.0            # HTML; a language identifier with its model (97 languages)
    python examples/warc_to_text.py                     # real archives, out of the source of the package pywb (by pip)
    python examples/warc_to_text.py --files 'crawl/*.warc.gz' --out text/
    python examples/warc_to_text.py --copies 200        # larger: each page again under another name, its words shuffled

Pages are read by the engine; a function in Python, in warm processes beside the workers, makes text of HTML and says its language; the filters are
expressions again. Prints how many pages each filter leaves, and the seconds. The result is OUT/*.parquet: url, date, language, score, words, text.
"""
import argparse
import gzip
import importlib.util
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
if importlib.util.find_spec("brant") is None:  # not installed: from the build tree
    sys.path.insert(0, str(ROOT / "python"))
    os.environ.setdefault("BRANT_LIB_DIR", str(ROOT / "build"))
PYWB = "pywb==2.10.0"
LEAST_WORDS, LEAST_SCORE, LONGEST_WORD, MOST_SYMBOLS, LEAST_LINE_WORDS = 50, 0.9, 12, 0.1, 3
BATCH_PAGES = 64


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


def reader():
    """The function that reads a page: its text, line by line, the language of it and how sure that is."""
    import brant

    @brant.cls
    class Page:
        def __init__(self):  # once a process: the model
            from py3langid.langid import MODEL_FILE, LanguageIdentifier
            self.identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

        def text(self, html, content_type):
            import re
            from lxml import etree, html as parser
            charset = re.search(r"charset=[\"']?([\w.:-]+)", content_type or "", re.I)
            for encoding in ([charset[1]] if charset else []) + [None]:  # None: as the page itself says
                try:
                    tree = parser.document_fromstring(html, parser=parser.HTMLParser(encoding=encoding))
                    break
                except (etree.ParserError, LookupError, ValueError):  # nothing in it, or an encoding that nobody knows
                    continue
            else:
                return None
            for e in tree.xpath("//script | //style | //noscript | //template | //head | //comment()"):
                e.drop_tree()
            for e in tree.xpath("//br | //p | //div | //li | //tr | //td | //th | //h1 | //h2 | //h3 | //h4 | //h5 | //h6 | //pre | //section | //article"):
                e.tail = "\n" + (e.tail or "")
                e.text = "\n" + (e.text or "")
            lines = (" ".join(line.split()) for line in tree.text_content().splitlines())
            return "\n".join(line for line in lines if line)

        @brant.method(return_dtype="STRUCT(text VARCHAR, language VARCHAR, score DOUBLE)", batch=True, batch_size=BATCH_PAGES, timeout=120)
        def read(self, pages: list, content_types: list) -> list:
            out = []
            for page, content_type in zip(pages, content_types):
                text = self.text(page, content_type) if page else None
                language, score = self.identifier.classify(text) if text else (None, None)
                out.append({"text": text, "language": language, "score": None if score is None else float(score)})
            return out

    return Page().read


def measured(session, files):
    """Pages of HTML with their text and what the filters ask."""
    import brant
    from brant import col, functions as f
    read = reader()
    pages = (brant.read_warc(files, on_error="skip", session=session)
             .where("type = 'response' AND http_status = 200 AND http_content_type ILIKE 'text/html%' AND octet_length(payload) > 0")
             .select("date", url="target_uri", page=read(col("payload"), col("http_content_type"))))
    texts = pages.select("url", "date", text=col("page").struct.get("text"), language=col("page").struct.get("language"),
                         score=col("page").struct.get("score")).where(col("text").not_null())
    words = f.len(f.regexp_extract_all(col("text"), r"\S+"))
    return texts.with_columns(words=words).with_columns(
        letters_a_word=f.length(col("text")) / f.greatest(col("words"), 1),
        symbols=f.len(f.regexp_extract_all(col("text"), r"[#{}<>|\\~^=*_]")) / f.greatest(f.length(col("text")), 1),
        words_a_line=col("words") / (f.len(f.regexp_extract_all(col("text"), r"\n")) + 1))


FILTERS = {  # name: what a page has to have
    "long": f"words >= {LEAST_WORDS}",
    "one language": f"score >= {LEAST_SCORE}",
    "words": f"letters_a_word <= {LONGEST_WORD}",
    "few symbols": f"symbols <= {MOST_SYMBOLS}",
    "sentences": f"words_a_line >= {LEAST_LINE_WORDS}",
}


def run(session, files, out, language="en"):
    """(documents kept, their words, how many pages each filter leaves). The pages are read once and stay on the workers."""
    pages = measured(session, files).persist()
    wanted = {**FILTERS, f"language {language}": f"language = '{language}'"} if language else FILTERS
    names = list(wanted)
    left = pages.agg(**{f"f{i}": brant_count(" AND ".join(list(wanted.values())[:i])) for i in range(len(names) + 1)}).to_pylist()[0]
    files = pages.where(*wanted.values()).select("url", "date", "language", "score", "words", "text").write_parquet(out)
    kept = pages.where(*wanted.values()).agg(n=brant_count(""), w=brant_sum("words")).to_pylist()[0]
    assert kept["n"] == sum(f["rows"] for f in files.iter_rows())
    return kept["n"], int(kept["w"] or 0), {"pages": left["f0"], **{n: left[f"f{i + 1}"] for i, n in enumerate(names)}}


def brant_count(condition):
    from brant import functions as f, sql_expr
    return f.count().filter(sql_expr(condition)) if condition else f.count()


def brant_sum(name):
    from brant import col
    return col(name).sum()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", help="a name or a pattern of WARC files")
    parser.add_argument("--out", help="a directory for the result")
    parser.add_argument("--language", default="en", help="the one to keep; '' keeps all")
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
            records = session.execute(f"SELECT count(*)::BIGINT AS n FROM read_warc({literal(files)}, on_error := 'skip')").arrow()["n"][0].as_py()
            started = time.monotonic()
            kept, words, left = run(session, files, out, options.language)
            seconds = time.monotonic() - started
            for name, n in {"records": records, **left}.items():
                print(f"{name:15s}{n:10d}")
            print(f"kept {kept} documents of {words} words; {size / 1e6:.1f} MB of archives in {seconds:.1f} s: {left['pages'] / seconds:.0f} pages/s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
