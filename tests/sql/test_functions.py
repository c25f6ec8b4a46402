# SPDX-License-Identifier: Apache-2.0
"""Functions for documents in SQL: the same in the caller's process, in plans and on executors."""
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import brantlib

MASK = (1 << 64) - 1
XXH3_OF_NOTHING = 0x2D06800538D394C2  # published test vector of XXH3_64bits


@pytest.fixture(scope="module")
def local():
    with brantlib.Session(workers=1, threads=1, distribute="never") as s:
        yield s


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    words = "the quick brown fox jumps over the lazy dog and runs away from it all".split()
    for part in range(4):
        rows = [None if i % 17 == 0 else " ".join(words[(i * 7 + k) % len(words)] for k in range(i % 30)) for i in range(part * 500, part * 500 + 500)]
        pq.write_table(pa.table({"id": pa.array(range(part * 500, part * 500 + 500)), "text": rows}), folder / f"{part}.parquet")
    return folder


def cells(session, sql):
    table = session.run(sql)[0]
    return [tuple(r.values()) for r in table.to_pylist()]


def one(session, expression):
    return cells(session, f"SELECT {expression} AS x")[0][0]


def splitmix(state):
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def test_minhash_is_what_is_documented(local):
    draw, x = splitmix(42), XXH3_OF_NOTHING >> 32
    want = [(((next(draw) * x) + next(draw)) & MASK) >> 32 for _ in range(20)]
    assert one(local, "minhash('', 20, 5, 42)") == want


def test_minhash_nulls_and_bounds(local):
    assert one(local, "minhash(NULL, 4, 1, 1)") is None
    assert one(local, "minhash('a', NULL, 1, 1)") is None
    assert one(local, "minhash('a b', 4, 9, 1) = minhash('a  b', 4, 2, 1)") is True
    assert one(local, "len(minhash('a b', 65536, 1, 1))") == 65536
    for bad in ("minhash('a', 0, 1, 1)", "minhash('a', 65537, 1, 1)", "minhash('a', 4, 0, 1)", "minhash('a', -1, 1, 1)"):
        with pytest.raises(brantlib.BrantError, match="hashes must be 1 to 65536"):
            one(local, bad)


def test_arguments_that_change_by_row(local):
    got = cells(local, "SELECT h, minhash('a b c', h, 2, h) = list_slice(minhash('a b c', 9, 2, h), 1, h) "
                       "FROM (SELECT (1 + i % 9)::INTEGER AS h FROM range(5000) r(i))")
    assert len(got) == 5000 and all(same for _, same in got)


def test_bands_and_similarity(local):
    assert one(local, "len(minhash_bands(minhash('a b c', 12, 1, 1), 4, 3))") == 4
    assert one(local, "minhash_bands(NULL, 4, 3)") is None
    assert one(local, "minhash_similarity(minhash('a b c', 12, 1, 1), minhash('c b a', 12, 1, 1))") == 1.0
    assert one(local, "minhash_similarity([1, 2, 3, 4]::UINTEGER[], [1, 2, 5, 6]::UINTEGER[])") == 0.5
    assert one(local, "minhash_similarity(NULL, [1]::UINTEGER[])") is None
    for bad, why in (("minhash_bands(minhash('a', 11, 1, 1), 4, 3)", "do not fit a signature of 11 values"),
                     ("minhash_bands([1, NULL]::UINTEGER[], 1, 1)", "is NULL"),
                     ("minhash_similarity([1]::UINTEGER[], [1, 2]::UINTEGER[])", "the same length"),
                     ("minhash_similarity([]::UINTEGER[], []::UINTEGER[])", "the same length")):
        with pytest.raises(brantlib.BrantError, match=why):
            one(local, bad)


def test_normalize_text(local):
    assert one(local, "normalize_text('  Hello,\tWÖRLD… “ok”! ')") == "hello wörld ok"
    assert one(local, "normalize_text('  Hello, W! ', lowercase := false)") == "Hello W"
    assert one(local, "normalize_text(' Hello, W! ', remove_punctuation := false, lowercase := false)") == "Hello, W!"
    assert one(local, "normalize_text(' A  b! ', collapse_spaces := false)") == " a  b "
    assert one(local, "normalize_text('e' || chr(769))") == "é"
    assert one(local, "normalize_text('e' || chr(769), nfc := false)") == "e\u0301"
    assert one(local, "normalize_text(NULL)") is None


def test_the_same_on_executors(workers, local, texts):
    sql = (f"SELECT id, minhash(normalize_text(text), 16, 3, 7) AS m, minhash_bands(minhash(text, 16, 3, 7), 4, 4) AS b, "
           f"normalize_text(upper(text)) AS n FROM read_parquet('{texts}/*.parquet') ORDER BY id")
    far = workers.run(sql)[0]
    assert far.equals(local.run(sql)[0]) and far.num_rows == 2000
    pairs = (f"WITH d AS (SELECT id, text, unnest(minhash_bands(minhash(text, 16, 3, 7), 4, 4)) AS key FROM read_parquet('{texts}/*.parquet')) "
             "SELECT DISTINCT a.id AS x, b.id AS y FROM d a JOIN d b ON a.key = b.key AND a.id < b.id WHERE a.text = b.text ORDER BY ALL LIMIT 500")
    assert workers.run(pairs)[0].equals(local.run(pairs)[0])


def test_views_over_them_reach_executors(workers, texts):
    workers.run(f"CREATE OR REPLACE VIEW clean AS SELECT id, normalize_text(text, lowercase := false) AS t FROM read_parquet('{texts}/*.parquet')")
    assert cells(workers, "SELECT count(t) AS n FROM clean") == [(2000 - 118,)]
