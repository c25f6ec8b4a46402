# SPDX-License-Identifier: Apache-2.0
"""The workloads of examples/ for peer.py: brant by the examples' own code, Daft by what its documentation shows for the same. A dict with
the seconds of the work alone, without start and models' loading."""
import os
import time


def is_brant(engine):
    return type(engine).__name__ == "Brant"


# ---- (c) duplicates: MinHash, bands, pairs checked by their signatures, connected components

def dedup(engine, documents):
    import dedup as example
    if not is_brant(engine):
        return dedup_daft(engine, example, documents)
    import brant
    engine.session.close()
    with brant.Session(workers=2, threads=1, progress=False, temp_dir=str(engine.scratch)) as session:
        begin = time.perf_counter()
        pairs = example.duplicates(session, f"'{documents}/*.parquet'", engine.scratch)
        labels = example.components(session, pairs, engine.scratch)
        seconds = time.perf_counter() - begin
        ids, label = (c.to_pylist() for c in session.execute(f"SELECT id, label FROM {labels}").arrow().columns)
    return {"seconds": seconds, "labels": dict(zip(ids, label))}


def dedup_daft(engine, example, documents):
    import daft
    import numpy as np
    import pyarrow as pa
    from daft import col
    from daft import functions as f

    @daft.func.batch(return_dtype=daft.DataType.float64())
    def similarity(x, y):
        a, b = (np.array(s.to_pylist(), dtype=np.uint32) for s in (x, y))
        return pa.array((a == b).mean(axis=1)) if len(a) else pa.array([], pa.float64())

    @daft.func.batch(return_dtype=daft.DataType.list(daft.DataType.string()))
    def bands(x):
        rows = np.array(x.to_pylist(), dtype=np.uint32).reshape(-1, example.BANDS, example.ROWS)
        return [[f"{k}:{band.tobytes().hex()}" for k, band in enumerate(row)] for row in rows]

    begin = time.perf_counter()
    text = f.normalize(col("text"), remove_punct=True, lowercase=True, nfd_unicode=False, white_space=True)
    signed = daft.read_parquet(f"{documents}/*.parquet").select(
        "id", f.minhash(text, num_hashes=example.HASHES, ngram_size=example.NGRAM, seed=example.SEED).alias("signature")).collect()
    keys = signed.select("id", bands(col("signature")).alias("key")).explode("key").collect()
    pairs = keys.select(col("id").alias("a"), "key").join(keys.select(col("id").alias("b"), "key"), on="key")
    pairs = pairs.where(col("a") < col("b")).select("a", "b").distinct()
    pairs = pairs.join(signed.select(col("id").alias("a"), col("signature").alias("x")), on="a")
    pairs = pairs.join(signed.select(col("id").alias("b"), col("signature").alias("y")), on="b")
    pairs = pairs.where(similarity(col("x"), col("y")) >= example.LEAST).select("a", "b").collect()
    edges = pairs.concat(pairs.select(col("b").alias("a"), col("a").alias("b"))).collect()
    labels = edges.groupby("a").agg(col("b").min().alias("b")).select(col("a").alias("id"), least(col("a"), col("b")).alias("label")).collect()
    while True:
        near = edges.join(labels.select(col("id").alias("b"), col("label").alias("other")), on="b").groupby("a").agg(col("other").min())
        near = labels.join(near.select(col("a").alias("id"), "other"), on="id").select("id", least(col("label"), col("other")).alias("near"), "label")
        jumped = near.join(labels.select(col("id").alias("near"), col("label").alias("far")), on="near")
        jumped = jumped.select("id", least(col("near"), col("far")).alias("new"), "label").collect()
        changed = jumped.where(col("new") != col("label")).count_rows()
        labels = jumped.select("id", col("new").alias("label")).collect()
        if changed == 0:
            break
    seconds = time.perf_counter() - begin
    found = labels.to_pydict()
    return {"seconds": seconds, "labels": dict(zip(found["id"], found["label"]))}


def least(x, y):
    from daft.functions import when
    return when(x <= y, x).otherwise(y)


# ---- (a) embeddings

def embed(engine, texts, model, out):
    import embed as example
    if not is_brant(engine):
        return embed_daft(example, texts, model, out)
    import brant
    engine.session.close()
    loads = engine.scratch / "loads"
    loads.mkdir()
    with brant.init(workers=2, threads=1, progress=False, temp_dir=str(engine.scratch)):
        m = example.make_model(model, str(loads), 2)
        brant.from_pydict({"text": ["warm", "up"] * 4}).with_column("e", m.embed(brant.col("text"))).to_arrow()  # processes and models are there
        seconds = example.embed(m, texts, out)
    return {"seconds": seconds, **summed(out)}


def embed_daft(example, texts, model, out):
    import daft
    from daft import col

    @daft.cls(max_concurrency=2, use_process=True)
    class Model:
        def __init__(self):
            self.encoder = example.Encoder(model)

        @daft.method.batch(return_dtype=daft.DataType.fixed_size_list(daft.DataType.float32(), example.WIDTH), batch_size=example.BATCH)
        def embed(self, texts):
            return list(self.encoder(texts.to_pylist()))

    m = Model()
    begin = time.perf_counter()
    daft.read_parquet(texts).with_column("embedding", m.embed(col("text"))).write_parquet(out)
    return {"seconds": time.perf_counter() - begin, **summed(out)}


def summed(out):
    import numpy as np
    import pyarrow.parquet as pq
    n, total = 0, 0.0
    for folder, _, names in os.walk(out):
        for name in names:
            if name.endswith(".parquet"):
                column = pq.read_table(os.path.join(folder, name), columns=["embedding"])["embedding"]
                n += len(column)
                total += sum(float(np.abs(c.flatten().to_numpy(zero_copy_only=False)).sum()) for c in column.chunks)
    return {"rows": n, "sum": total}
