#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Near-duplicates among documents: MinHash, locality-sensitive hashing, connected components; in SQL, over Parquet files.

    python examples/dedup.py                      # 100,000 documents, made here with near-duplicates of known similarity
    python examples/dedup.py --documents 2000     # a small run

Prints what of the planted pairs was found, by their true Jaccard similarity; the precision; the seconds of each step. The result
is DIR/kept/*.parquet: one document of each group.
"""
import argparse
import importlib.util
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
if importlib.util.find_spec("brant") is None:  # not installed: from the build tree
    sys.path.insert(0, str(ROOT / "python"))
    os.environ.setdefault("BRANT_LIB_DIR", str(ROOT / "build"))
HASHES, NGRAM, SEED = 126, 3, 42
BANDS, ROWS = 21, 6  # a pair of similarity s meets in a band with probability 1 - (1 - s^6)^21: 0.28 at 0.5, 0.93 at 0.7, 1.00 at 0.8
LEAST = 0.6          # estimated similarity of what is called a duplicate
EDITS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.35)  # share of the words that are changed
COPIED = 0.1         # share of the documents that are changed copies of others
FILES = 8


# ---- the documents

def edited(draw, words, share, vocabulary, weights):
    """Replace, leave out or add words; change case, punctuation and spaces, which normalize_text puts right."""
    out = []
    for word in words:
        if draw.random() >= share:
            out.append(word)
            continue
        kind = draw.randrange(3)
        if kind != 1:
            out.append(draw.choices(vocabulary, cum_weights=weights)[0])
        if kind == 2:
            out.append(word)
    noisy = [w.upper() if draw.random() < 0.05 else w + "," if draw.random() < 0.05 else w for w in out]
    return draw.choice([" ", "  "]).join(noisy)


def make(folder, count, seed=1):
    """Parquet files of id, text; returns the planted pairs (original, copy) and the texts of both."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    draw = random.Random(seed)
    vocabulary = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 10))) for _ in range(30000)]
    weights, total = [], 0.0
    for rank in range(len(vocabulary)):
        total += 1 / (rank + 10)
        weights.append(total)
    originals = count - int(count * COPIED)
    texts = [" ".join(draw.choices(vocabulary, cum_weights=weights, k=draw.randint(40, 160))) for _ in range(originals)]
    planted = []
    for copy in range(originals, count):
        source = draw.randrange(originals)
        planted.append((source, copy))
        texts.append(edited(draw, texts[source].split(), draw.choice(EDITS), vocabulary, weights))
    order = list(range(count))
    draw.shuffle(order)
    for k in range(FILES):
        part = order[k::FILES]
        pq.write_table(pa.table({"id": pa.array(part, pa.int64()), "text": [texts[i] for i in part]}), folder / f"{k}.parquet")
    return planted, texts


def shingles(text):
    words = re.sub(r"[^\w\s]", "", text.lower()).split()
    return {tuple(words[i:i + NGRAM]) for i in range(max(1, len(words) - NGRAM + 1))}


def jaccard(a, b):
    x, y = shingles(a), shingles(b)
    return len(x & y) / len(x | y)


# ---- the work

def write(session, query, folder):
    shutil.rmtree(folder, ignore_errors=True)
    session.execute(f"COPY ({query}) TO '{folder}/' (FORMAT parquet)").arrow()
    return f"'{folder}/**/*.parquet'"


def count(session, source):
    return session.execute(f"SELECT count(*)::BIGINT AS n FROM {source}").arrow()["n"][0].as_py()


def duplicates(session, documents, folder):
    """Pairs (a, b), a < b, that are similar enough: those that meet in a band, checked by their whole signatures."""
    signed = write(session, f"SELECT id, minhash(normalize_text(text), {HASHES}, {NGRAM}, {SEED}) AS signature FROM {documents}",
                   folder / "signed")
    keys = f"SELECT id, unnest(minhash_bands(signature, {BANDS}, {ROWS})) AS key FROM {signed}"
    meeting = write(session, f"WITH k AS ({keys}) SELECT DISTINCT least(k.id, l.id) AS a, greatest(k.id, l.id) AS b "
                             "FROM k JOIN k l ON k.key = l.key AND k.id < l.id", folder / "meeting")
    return write(session, f"SELECT a, b FROM {meeting} m JOIN {signed} x ON x.id = m.a JOIN {signed} y ON y.id = m.b "
                          f"WHERE minhash_similarity(x.signature, y.signature) >= {LEAST}", folder / "pairs")


def components(session, pairs, folder):
    """(id, label) of all documents in pairs: label is the least id that can be reached. Each round takes the least label of the
    neighbours, then the label of that label, so long chains are short work."""
    edges = f"(SELECT a, b FROM {pairs} UNION ALL SELECT b, a FROM {pairs})"
    labels = write(session, f"SELECT a AS id, least(a, min(b)) AS label FROM {edges} GROUP BY a", folder / "labels-0")
    for turn in range(1, 100):
        near = (f"SELECT l.id, least(l.label, min(n.label)) AS label FROM {labels} l JOIN {edges} e ON e.a = l.id "
                f"JOIN {labels} n ON n.id = e.b GROUP BY l.id, l.label")
        jumped = write(session, f"WITH near AS ({near}) SELECT near.id, least(near.label, l.label) AS label FROM near "
                                f"JOIN {labels} l ON l.id = near.label", folder / f"labels-{turn}")
        if not count(session, f"{labels} o JOIN {jumped} n USING (id) WHERE o.label <> n.label"):
            return jumped
        labels = jumped
    raise SystemExit("the components did not settle in 100 rounds")


def keep(session, documents, labels, folder):
    """All documents but those whose component has a lower id."""
    return write(session, f"SELECT d.* FROM {documents} d LEFT JOIN {labels} l USING (id) WHERE l.label IS NULL OR l.label = d.id", folder)


# ---- how good it is

def report(session, planted, texts, pairs, labels):
    label = dict(zip(*(c.to_pylist() for c in session.execute(f"SELECT id, label FROM {labels}").arrow().columns)))
    family = {copy: source for source, copy in planted}
    bands = {}
    for source, copy in planted:
        j = jaccard(texts[source], texts[copy])
        found = copy in label and label.get(source) == label[copy]
        band = bands.setdefault(min(9, int(j * 10)), [0, 0])
        band[0] += 1
        band[1] += found
    print("true similarity   planted   found   recall")
    for b in sorted(bands, reverse=True):
        total, found = bands[b]
        print(f"    {b / 10:.1f} to {(b + 1) / 10:.1f}    {total:8d}{found:8d}   {found / total:6.3f}")
    found = list(zip(*(c.to_pylist() for c in session.execute(f"SELECT a, b FROM {pairs}").arrow().columns)))
    right = sum(family.get(a, a) == family.get(b, b) for a, b in found)
    precision = right / len(found) if found else 1.0
    print(f"pairs called duplicates: {len(found)}, of them of one origin: {right}; precision {precision:.4f}")
    high = [v for k, v in bands.items() if k >= 8]
    return sum(v[1] for v in high) / max(1, sum(v[0] for v in high)), precision


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=100000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--dir", help="keep the files there")
    options = parser.parse_args(arguments)
    import brant
    folder = pathlib.Path(options.dir or tempfile.mkdtemp(prefix="brant-dedup-"))
    try:
        started = time.monotonic()
        (folder / "documents").mkdir(parents=True)
        planted, texts = make(folder / "documents", options.documents)
        print(f"{len(texts)} documents, {sum(map(len, texts)) / 1e6:.1f} MB, {len(planted)} planted copies; made in {time.monotonic() - started:.1f} s")
        documents = f"'{folder}/documents/*.parquet'"
        with brant.Session(workers=options.workers, threads=1, progress=False) as session:
            started = at = time.monotonic()
            pairs = duplicates(session, documents, folder)
            print(f"pairs         {time.monotonic() - at:6.1f} s")
            at = time.monotonic()
            labels = components(session, pairs, folder)
            print(f"components    {time.monotonic() - at:6.1f} s")
            at = time.monotonic()
            kept = keep(session, documents, labels, folder / "kept")
            print(f"kept          {time.monotonic() - at:6.1f} s")
            print(f"{count(session, kept)} of {len(texts)} documents kept; together {time.monotonic() - started:.1f} s")
            recall, precision = report(session, planted, texts, pairs, labels)
    finally:
        if not options.dir:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if recall >= 0.99 and precision >= 0.99 else 1


if __name__ == "__main__":
    sys.exit(main())
