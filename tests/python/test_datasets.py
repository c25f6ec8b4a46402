# SPDX-License-Identifier: Apache-2.0
"""Tables from Arrow streams, and results that stay on the workers."""
import datetime
import decimal
import json
import os
import pathlib
import signal
import time

import paths
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import brant
from brant import errors

N = 1_000_000
UTC = datetime.timezone.utc


@pytest.fixture(scope="module", params=["never", "auto", "always"])
def session(request):
    with brant.Session(workers=2, threads=1, memory=1 << 30, distribute=request.param) as s:
        s.how = request.param
        yield s


@pytest.fixture(scope="module")
def cluster():
    with brant.Session(workers=3, threads=1, memory=1 << 30, distribute="always") as s:
        s.pids = []
        s.seen = []
        s.subscribe(lambda text: s.seen.append(json.loads(text)))
        yield s


@pytest.fixture
def register(request):
    """register(session, name, data): dropped at the end of the test."""
    kept = []

    def add(s, name, data):
        s._native.register_arrow(name, data)
        kept.append((s, name))
    yield add
    for s, name in kept:
        s._native.drop_table(name)


def rows(s, sql):
    return [tuple(r.values()) for r in s.execute(sql).arrow().to_pylist()]


def numbers(n=N):
    return pa.table({"id": pa.array(range(n), pa.int64()), "k": pa.array([i % 37 for i in range(n)], pa.int32()),
                     "s": pa.array([f"s{i % 14}" for i in range(n)])})


def every_type(n):
    tz = pa.timestamp("us", "UTC")
    one = {"b": (pa.bool_(), [True, False, None]), "i8": (pa.int8(), [-128, 127, None]), "u8": (pa.uint8(), [0, 255, None]),
           "i16": (pa.int16(), [-5, None, 7]), "u16": (pa.uint16(), [1, 2, None]), "i32": (pa.int32(), [None, 1, -1]),
           "u32": (pa.uint32(), [1, 2, 3]), "i64": (pa.int64(), [1 << 62, None, -3]), "u64": (pa.uint64(), [2**64 - 1, 0, None]),
           "f": (pa.float32(), [1.5, None, -2.25]), "d": (pa.float64(), [1e300, None, 0.1]),
           "dec": (pa.decimal128(20, 3), [decimal.Decimal("1.125"), None, decimal.Decimal("-99999999999999999.999")]),
           "s": (pa.string(), ["", None, "ü" * 20]), "ls": (pa.large_string(), ["a", None, "long enough to leave its place"]),
           "bin": (pa.binary(), [b"\0\1", None, b""]), "day": (pa.date32(), [datetime.date(1969, 7, 20), None, datetime.date(2026, 1, 2)]),
           "t": (pa.time64("us"), [datetime.time(1, 2, 3, 4), None, datetime.time(0)]),
           "ts": (pa.timestamp("us"), [datetime.datetime(2020, 1, 2, 3, 4, 5, 6), None, datetime.datetime(1900, 1, 1)]),
           "tz": (tz, [datetime.datetime(2020, 1, 2, 3, 4, 5, 6, datetime.timezone.utc), None, datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)]),
           "l": (pa.list_(pa.int32()), [[1, None, 3], None, []]),
           "st": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": "x"}, None, {"a": None, "b": ""}]),
           "m": (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", None)], None, []]), "ll": (pa.list_(pa.list_(pa.string())), [[["a"], None], None, [[]]]),
           "fl": (pa.list_(pa.int16(), 2), [[1, 2], [3, 4], [None, 6]])}
    return pa.table({name: pa.array((values * (n // 3 + 1))[:n], kind) for name, (kind, values) in one.items()})


def test_round_trip_of_a_million_rows(session, register):
    t = numbers()
    register(session, "t", t)
    assert session.execute("SELECT * FROM t").arrow().equals(t)  # in their order
    assert rows(session, "SELECT count(*), sum(id), max(s) FROM T") == [(N, decimal.Decimal(N * (N - 1) // 2), "s9")]
    assert rows(session, "SELECT k, count(*) FROM dataset('t') WHERE s = 's3' AND id < 1000 GROUP BY k ORDER BY k LIMIT 2") == [(0, 2), (1, 2)]
    assert session.execute("SELECT s FROM t WHERE id = 77").arrow().to_pylist() == [{"s": "s7"}]
    assert session.execute("SELECT t.id FROM t LIMIT 3 OFFSET 5").arrow().num_rows == 3


def test_every_type(session, register):
    t = every_type(10000)
    register(session, "types", t)
    got = session.execute("SELECT * FROM types").arrow()
    assert got.column_names == t.column_names
    for name in t.column_names:
        assert got[name].to_pylist() == t[name].to_pylist(), name


def test_kinds_of_arrow(session, register):
    """Views, slices, chunks of one row, names that are equal or empty."""
    words = pa.array(["a", "b", None, "a"] * 3000)
    t = pa.Table.from_arrays([words, pa.array(range(12000)), pa.array(range(12000)), pa.array(["x" * (i % 40) for i in range(12000)], pa.string_view())],
                             names=["w", "x", "X", ""])
    register(session, "odd", t.slice(3, 9000))
    got = session.execute("SELECT * FROM odd").arrow()
    assert got.column_names[:2] == ["w", "x"] and len(set(n.lower() for n in got.column_names)) == 4
    assert [c.to_pylist() for c in got.columns] == [c.to_pylist() for c in t.slice(3, 9000).columns]
    small = pa.Table.from_batches([pa.record_batch({"a": [i]}) for i in range(300)])
    register(session, "small", small)
    assert rows(session, "SELECT count(*), sum(a) FROM small") == [(300, 44850)]


def test_encoded_columns(session, register):
    """Dictionaries and runs, nested and over each other, sliced, with NULLs in keys and in values: as if they were plain."""
    n = 9000
    words = pa.array([["a", "bb", None, "a long word that is not inlined"][i % 4] for i in range(n)])
    keys = pa.array([i % 3 if i % 7 else None for i in range(n)], pa.int8())
    odd = pa.DictionaryArray.from_arrays(keys, pa.array(["x", None, "z"]))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([10, 4000, n], pa.int32()), pa.array(["r", None, "s"]))
    run_keys = pa.RunEndEncodedArray.from_arrays(pa.array([5, n], pa.int64()), pa.array(["p", "q"]).dictionary_encode())
    lists = pa.ListArray.from_arrays(pa.array(range(0, n + 1, 1), pa.int32()), words.dictionary_encode())
    structs = pa.StructArray.from_arrays([words.dictionary_encode(), pa.array(range(n))], ["w", "i"])
    values = {"dec": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-7.25")], pa.decimal128(10, 2)), "f": pa.array([1.5, None, 2.5], pa.float32()),
              "day": pa.array([datetime.date(2020, 1, 1), None, datetime.date(1969, 1, 1)]), "b": pa.array([True, False, None]),
              "u": pa.array([2**64 - 1, 0, None], pa.uint64()), "bin": pa.array([b"\0", b"", None]), "l": pa.array([[1, None], [], None]),
              "m": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int32())), "fl": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int16(), 2))}
    columns = {"plain": pa.array(range(n)), "w": words.dictionary_encode(), "odd": odd, "runs": runs, "run_keys": run_keys, "lists": lists, "structs": structs}
    want = {"plain": list(range(n)), "w": words.to_pylist(), "odd": odd.to_pylist(), "runs": runs.to_pylist(), "run_keys": ["p"] * 5 + ["q"] * (n - 5),
            "lists": [[w] for w in words.to_pylist()], "structs": [{"w": w, "i": i} for i, w in enumerate(words.to_pylist())]}
    for name, v in values.items():
        columns[name] = pa.DictionaryArray.from_arrays(pa.array([i % 3 for i in range(n)], pa.uint16()), v)
        want[name] = [v.to_pylist()[i % 3] for i in range(n)]
    t = pa.table(columns)
    register(session, "encoded", t)
    register(session, "sliced", t.slice(1001, 5003))
    for name, first, rows_ in (("encoded", 0, n), ("sliced", 1001, 5003)):
        got = session.execute(f"SELECT * FROM {name}").arrow()
        for c in t.column_names:
            assert got[c].to_pylist() == want[c][first:first + rows_], c
    halves = pa.array([1.5, None, -0.25, float("inf")], pa.float16())
    lists = pa.ListArray.from_arrays([0, 1, 2, 3, 4], halves)
    register(session, "halves", pa.table({"h": halves, "l": lists, "v": pa.array([[1], [], None, [2]], pa.list_view(pa.int8()))}))
    assert rows(session, "SELECT * FROM halves") == [(1.5, [1.5], [1]), (None, [None], []), (-0.25, [-0.25], None), (float("inf"), [float("inf")], [2])]
    import pandas
    frame = pandas.DataFrame({"c": pandas.Categorical(["lo", "hi", None] * 2000, categories=["lo", "hi"], ordered=True)})
    register(session, "categories", frame)
    assert rows(session, "SELECT c, count(*) FROM categories GROUP BY c ORDER BY c NULLS LAST") == [("hi", 2000), ("lo", 2000), (None, 2000)]


def test_types_that_are_not_taken(session):
    """Each with the column's name; the name of the table is free afterwards."""
    union = pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["b"])])
    views = pa.DictionaryArray.from_arrays([0, 1], pa.array([[1], [2]], pa.list_view(pa.int64())))
    for column in (union, views, pa.array([[decimal.Decimal(1)]] * 2, pa.list_(pa.decimal256(70, 2)))):
        with pytest.raises(errors.Error, match="col_x") as e:
            session._native.register_arrow("refused", pa.table({"a": [1, 2], "col_x": column}))
        assert e.value.code == "UNSUPPORTED"
    session._native.register_arrow("refused", pa.table({"a": [1]}))
    session._native.drop_table("refused")


def test_joins_of_two_and_a_file(session, register, tmp_path):
    pq.write_table(pa.table({"k": list(range(37)), "name": [f"n{i}" for i in range(37)]}), tmp_path / "names.parquet")
    register(session, "a", numbers(300000))
    register(session, "b", pa.table({"id": list(range(0, 300000, 3))}))
    sql = f"SELECT count(*), count(DISTINCT n.name), sum(a.id) FROM a JOIN b USING (id) JOIN '{tmp_path}/names.parquet' n USING (k)"
    assert rows(session, sql) == [(100000, 37, sum(range(0, 300000, 3)))]
    assert rows(session, "SELECT count(*) FROM a x JOIN a y ON x.id = y.id") == [(300000,)]


def test_empty(session, register):
    register(session, "empty", pa.table({"a": pa.array([], pa.int32()), "b": pa.array([], pa.string())}))
    assert session.execute("SELECT * FROM empty").arrow().schema.names == ["a", "b"]
    assert rows(session, "SELECT count(*), max(b) FROM empty") == [(0, None)]
    register(session, "one", pa.table({"a": [1]}))
    assert rows(session, "SELECT one.a, e.b FROM one LEFT JOIN empty e USING (a)") == [(1, None)]


def test_a_stream_that_fails_half_way(session):
    def batches():
        yield pa.record_batch({"a": list(range(200000))})
        raise RuntimeError("the disk of the caller is gone")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches())
    with pytest.raises(errors.Error, match="broken.*the disk of the caller is gone"):
        session._native.register_arrow("broken", reader)
    with pytest.raises(errors.InvalidError, match="broken"):
        session.execute("SELECT * FROM broken")
    session._native.register_arrow("broken", pa.table({"a": [1]}))  # the name is free
    session._native.drop_table("broken")


def test_wrong_data_and_names(session, register):
    with pytest.raises(AttributeError):
        session._native.register_arrow("x", 5)
    with pytest.raises(errors.InvalidError, match="at least one column"):
        session._native.register_arrow("x", pa.table({}))
    with pytest.raises(errors.InvalidError, match="name"):
        session._native.register_arrow("", pa.table({"a": [1]}))
    register(session, "x", pa.table({"a": [1]}))
    with pytest.raises(errors.InvalidError, match="drop it first"):
        session._native.register_arrow("X", pa.table({"a": [1]}))
    with pytest.raises(errors.Error, match="nothing"):
        session._native.drop_table("nothing")
    with pytest.raises(errors.InvalidError, match="nothing"):
        session.execute("SELECT * FROM dataset('nothing')")
    capsule = pa.table({"a": [5]}).__arrow_c_stream__()
    register(session, "cap", capsule)
    assert rows(session, "SELECT * FROM cap") == [(5,)]
    with pytest.raises(ValueError, match="taken"):
        session._native.register_arrow("cap2", capsule)


def test_what_cannot_be_taken_apart_runs_here(session, register, tmp_path):
    (tmp_path / "a.csv").write_text("id\n1\n2\n3\n")
    register(session, "t", numbers(1000))
    assert rows(session, f"SELECT count(*), sum(t.k) FROM t JOIN read_csv(concat('{tmp_path}/a', '.csv')) c USING (id)") == [(3, 6)]


def test_ten_times_the_memory_goes_to_disk(tmp_path):
    text = "x" * 1000

    def batches(n):
        for i in range(n):
            yield pa.record_batch({"id": list(range(i * 1000, i * 1000 + 1000)), "t": [text + str(j) for j in range(1000)]})

    schema = pa.schema([("id", pa.int64()), ("t", pa.string())])
    with brant.Session(workers=2, threads=1, memory=1 << 30, distribute="always", temp_dir=str(tmp_path),
                       settings={"dataset_bytes": "16MiB"}) as s:
        s._native.register_arrow("big", pa.RecordBatchReader.from_batches(schema, batches(160)))
        on_disk = sum(paths.sizes(tmp_path, "brant-data-*/**/*").values())
        assert on_disk > 0
        assert rows(s, "SELECT count(*), sum(id), sum(length(t)) FROM big") == [(160000, 160000 * 159999 // 2, 160 * (1000 * 1000 + 2890))]
        assert s.execute("SELECT id FROM big").arrow()["id"].to_pylist() == list(range(160000))
        s._native.drop_table("big")
        until = time.monotonic() + 20  # the loop's thread has the last reference
        while paths.sizes(tmp_path, "brant-data-*/**/*"):
            assert time.monotonic() < until
            time.sleep(0.01)
    assert not list(tmp_path.glob("brant-data-*"))


# ---- results that stay

def persist(s, name, sql):
    s._native.submit(sql).persist(name)


def test_persist(session, register):
    register(session, "t", numbers(200000))
    persist(session, "p", "SELECT k, id, upper(s) AS u FROM t WHERE id % 2 = 0")
    assert rows(session, "SELECT count(*), sum(id), min(u) FROM p") == [(100000, sum(range(0, 200000, 2)), "S0")]
    assert rows(session, "SELECT count(*) FROM p JOIN t USING (id) WHERE p.k = 5") == [(len([i for i in range(0, 200000, 2) if i % 37 == 5]),)]
    persist(session, "q", "SELECT k, count(*) AS n FROM p GROUP BY k")
    assert rows(session, "SELECT count(*), sum(n) FROM q") == [(37, 100000)]
    session._native.drop_table("q")
    session._native.drop_table("p")
    with pytest.raises(errors.InvalidError):
        session.execute("SELECT * FROM p")


def test_persist_of_a_query_that_fails(session):
    with pytest.raises(errors.Error, match="(?i)convert"):
        persist(session, "bad", "SELECT CAST('x' || range AS INTEGER) AS a FROM range(5)")
    with pytest.raises(errors.InvalidError):
        session.execute("SELECT * FROM bad")


def test_persist_takes_the_result(cluster):
    q = cluster._native.submit("SELECT 1 AS a")
    q.persist("once")
    with pytest.raises(errors.InvalidError, match="taken"):
        q.persist("twice")
    cluster._native.drop_table("once")


def worker_pids(s):
    return [e["pid"] for e in s.seen if e["type"] == "worker_joined"]


def test_a_worker_is_killed_between_persist_and_use(cluster, register):
    register(cluster, "t", numbers(400000))
    persist(cluster, "p", "SELECT k, id, s FROM t WHERE id % 3 <> 1")
    want = [(266667, sum(i for i in range(400000) if i % 3 != 1))]
    assert rows(cluster, "SELECT count(*), sum(id) FROM p") == want
    os.kill(worker_pids(cluster)[-1], signal.SIGKILL)
    assert rows(cluster, "SELECT count(*), sum(id) FROM p") == want
    assert rows(cluster, "SELECT count(*), sum(id) FROM p JOIN t USING (id)") == want
    cluster._native.drop_table("p")


def test_a_worker_is_killed_while_it_is_used(cluster, register):
    register(cluster, "t", numbers(400000))
    persist(cluster, "p", "SELECT k, id, s FROM t")
    before = len(cluster.seen)
    victim = worker_pids(cluster)[-1]
    killed = []

    def at_first_task(text):
        e = json.loads(text)
        if e["type"] == "task_started" and not killed and len(cluster.seen) > before:
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    cluster.subscribe(at_first_task)
    sql = "SELECT count(*), sum(a.id), count(DISTINCT a.s) FROM p a JOIN p b ON a.id = b.id AND a.k = b.k"
    assert rows(cluster, sql) == [(400000, 400000 * 399999 // 2, 14)]
    assert killed
    cluster._native.drop_table("p")


def test_close_forgets_all(tmp_path):
    s = brant.Session(workers=2, threads=1, memory=1 << 30, distribute="always", temp_dir=str(tmp_path))
    s._native.register_arrow("t", numbers(50000))
    persist(s, "p", "SELECT * FROM t")
    result = s.execute("SELECT * FROM t")
    s.close()
    with pytest.raises(errors.Error):
        result.arrow()
    assert not [f for f in pathlib.Path(tmp_path).rglob("*") if f.is_file()]
