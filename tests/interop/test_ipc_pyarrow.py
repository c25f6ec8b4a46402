# SPDX-License-Identifier: Apache-2.0
"""Arrow IPC between brant and pyarrow, both ways. Programs ipc_write and ipc_read: ninja ipc_write ipc_read.
BRANT_BUILD_DIR says where they are (default: build)."""
import decimal
import os
import pathlib
import subprocess

import pyarrow as pa
import pytest

BUILD = pathlib.Path(os.environ.get("BRANT_BUILD_DIR", pathlib.Path(__file__).parents[2] / "build"))
CODECS = ["none", "lz4", "zstd"]


def run(program, *args, data=None):
    path = BUILD / program
    if not path.exists():
        pytest.skip(f"{path} isn't built")
    done = subprocess.run([path, *map(str, args)], input=data, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("rows", [0, 1, 2, 333, 5000])
def test_pyarrow_reads_ours(codec, rows):
    with pa.ipc.open_stream(run("ipc_write", codec, rows)) as reader:
        batches = list(reader)
    assert len(batches) == 2
    for batch in batches:
        batch.validate(full=True)
    table = pa.Table.from_batches(batches)
    assert table.num_rows == rows
    assert table["row"].to_pylist() == list(range(rows))
    assert table["label"].to_pylist() == [None if i % 5 == 0 else f"r{i}" for i in range(rows)]
    assert table.schema.field("dec16in128").type == pa.decimal128(4, 1)
    assert table.schema.field("map").type == pa.map_(pa.string(), pa.int32())
    assert table.schema.field("uuid").type == pa.uuid()
    if rows > 100:
        assert 0 < table["text"].null_count < rows
        assert all(x is None or len(x) == 3 for x in table["array"].to_pylist())


def foreign_table(rows):
    def every(values):
        return [None if i % 7 == 3 else values[i % len(values)] for i in range(rows)]

    types = pa.array([i % 2 for i in range(rows)], pa.int8())
    ints, texts = pa.array(range(rows), pa.int32()), pa.array([f"t{i}" for i in range(rows)])
    columns = {
        "i8": pa.array(every([1, -1]), pa.int8()),
        "u64": pa.array(every([2**64 - 1, 0]), pa.uint64()),
        "f16": pa.array(every([1.5, 2]), pa.float16()),
        "f64": pa.array(every([0.1, -2.0]), pa.float64()),
        "bool": pa.array(every([True, False, True])),
        "text": pa.array(every(["", "a", "äöü€😀", "x" * 500])),
        "large_text": pa.array(every(["", "b"]), pa.large_string()),
        "bytes": pa.array(every([b"\xff\x00", b""])),
        "fixed": pa.array(every([b"abc", b"def"]), pa.binary(3)),
        "dec32": pa.array(every([decimal.Decimal("1.5")]), pa.decimal32(5, 1)),
        "dec64": pa.array(every([decimal.Decimal("-1.5")]), pa.decimal64(15, 1)),
        "dec128": pa.array(every([decimal.Decimal("-1.5")]), pa.decimal128(38, 1)),
        "dec256": pa.array(every([decimal.Decimal("-1.5")]), pa.decimal256(50, 1)),
        "date": pa.array(every([1, 2]), pa.date32()),
        "date64": pa.array(every([86400000]), pa.date64()),
        "ts": pa.array(every([1, 2**50]), pa.timestamp("us", "Europe/Berlin")),
        "tsn": pa.array(every([1]), pa.timestamp("ns")),
        "time": pa.array(every([1]), pa.time64("us")),
        "duration": pa.array(every([1]), pa.duration("s")),
        "interval": pa.array(every([pa.MonthDayNano([1, 2, 3])])),
        "null": pa.nulls(rows),
        "list": pa.array(every([[1, None], [], [3]]), pa.list_(pa.int64())),
        "large_list": pa.array(every([["x"], []]), pa.large_list(pa.string())),
        "array": pa.array(every([[1, 2], [3, 4]]), pa.list_(pa.int32(), 2)),
        "map": pa.array(every([[("k", 1)], []]), pa.map_(pa.string(), pa.int32())),
        "struct": pa.array(every([{"a": 1, "b": ["x"]}]), pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())})),
        "sparse": pa.UnionArray.from_sparse(types, [ints, texts]),
        "dense": pa.UnionArray.from_dense(types, pa.array([i // 2 for i in range(rows)], pa.int32()), [ints, texts]),
        "uuid": pa.array(every([bytes(range(16))]), pa.uuid()),
    }
    return pa.table(columns)


def to_stream(table, compression, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression, **options)) as writer:
        for batch in table.to_batches(max_chunksize=700):
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("theirs", [None, "lz4", "zstd"])
@pytest.mark.parametrize("ours", CODECS)
@pytest.mark.parametrize("rows", [0, 1, 9, 2000])
def test_we_read_pyarrows(theirs, ours, rows):
    table = foreign_table(rows)
    back = pa.ipc.open_stream(run("ipc_read", ours, data=to_stream(table, theirs))).read_all()
    back.validate(full=True)
    assert back.equals(table)


@pytest.mark.parametrize("theirs", [None, "lz4"])
def test_slices_and_chunks(theirs):
    table = foreign_table(1000)
    for start, length in [(1, 998), (63, 65), (500, 0), (8, 16)]:
        part = table.slice(start, length)
        back = pa.ipc.open_stream(run("ipc_read", "lz4", data=to_stream(part, theirs))).read_all()
        assert back.equals(part)


def test_old_metadata_version():
    table = foreign_table(50).drop_columns(["sparse", "dense"])
    stream = to_stream(table, None, metadata_version=pa.ipc.MetadataVersion.V4)
    assert pa.ipc.open_stream(run("ipc_read", "none", data=stream)).read_all().equals(table)


def test_refused_with_a_reason():
    for table in [
        pa.table({"mood": pa.array(["a", "b", "a"]).dictionary_encode()}),
        pa.table({"mood": pa.array(["a"], pa.string_view())}),
    ]:
        path = BUILD / "ipc_read"
        if not path.exists():
            pytest.skip(f"{path} isn't built")
        done = subprocess.run([path, "none"], input=to_stream(table, None), capture_output=True, timeout=60)
        assert done.returncode == 1
        assert b"dictionary" in done.stderr or b"View" in done.stderr
