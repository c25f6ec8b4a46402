#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batch inference: texts to vectors by the sentence model MiniLM, one model a process, into Parquet; beside the bare loop.

    build/deps/venv/bin/python examples/embed.py                 # 20,000 entries of dictionaries, of one to many sentences
    build/deps/venv/bin/python examples/embed.py --texts 100000 --rounds 3

Fetches what it needs first (deps/fetch.sh models). Texts go to TEXTS.parquet, vectors to OUT/*.parquet: id, text, embedding FLOAT[384].
The bare loop is the same class, without brant, on the same cores: two processes of one thread or one of two threads,
whichever is faster. Both begin with the model loaded. Ends with 1 if a vector differs, or a known pair of sentences is
not as similar as it must be.
"""
import argparse
import gzip
import importlib.util
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEPS = pathlib.Path(os.environ.get("BRANT_DEPS_DIR", ROOT / "build" / "deps"))
if importlib.util.find_spec("brant") is None:  # not installed: from the build tree
    sys.path.insert(0, str(ROOT / "python"))
    os.environ.setdefault("BRANT_LIB_DIR", str(ROOT / "build"))
DICTIONARIES = {"foldoc": "dict-foldoc", "jargon": "dict-jargon", "gcide": "dict-gcide"}
BATCH, TOKENS, AT_ONCE, WIDTH = 256, 128, 16, 384
LEAST_LETTERS = 60
# what the model's authors show for it: similarity to "That is a happy person"
KNOWN = {"That is a happy person": 1.0, "That is a happy dog": 0.695, "That is a very happy person": 0.943, "Today is a sunny day": 0.257}


class Encoder:
    """The model. Texts of a batch are taken by length, so that few tokens are padding."""

    def __init__(self, folder, threads=1):
        import onnxruntime
        import tokenizers
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), options, providers=["CPUExecutionProvider"])
        self.tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.tokenizer.enable_truncation(TOKENS)
        self.tokenizer.no_padding()

    def __call__(self, texts):
        tokens = [e.ids for e in self.tokenizer.encode_batch(texts)]
        order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))
        out = np.empty((len(texts), WIDTH), np.float32)
        for first in range(0, len(order), AT_ONCE):
            part = order[first:first + AT_ONCE]
            ids = np.zeros((len(part), len(tokens[part[-1]])), np.int64)
            mask = np.zeros_like(ids)
            for row, i in enumerate(part):
                ids[row, :len(tokens[i])] = tokens[i]
                mask[row, :len(tokens[i])] = 1
            hidden, = self.session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
            mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
            out[part] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return out


# ---- texts


def entries(name, deps):
    """Of a dictionary in dictd's form: a compressed text, and an index of places in it."""
    digits = {c: i for i, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}

    def number(word):
        n = 0
        for c in word:
            n = 64 * n + digits[c]
        return n

    folder = deps / "models" / DICTIONARIES[name] / "usr" / "share" / "dictd"
    with gzip.open(folder / f"{name}.dict.dz") as f:
        data = f.read()
    places = set()
    for line in (folder / f"{name}.index").read_text(errors="replace").splitlines():
        word, first, size = line.split("\t")[:3]
        if not word.startswith("00"):
            places.add((number(first), number(size)))
    for first, size in sorted(places):
        text = re.sub(r"\s+", " ", re.sub(r"[{}]", "", data[first:first + size].decode("utf-8", "replace"))).strip()
        if len(text) >= LEAST_LETTERS:
            yield text


def read_texts(n, deps, names=tuple(DICTIONARIES)):
    """n different entries, in an order that is always the same."""
    texts = sorted({t for name in names for t in entries(name, deps)})
    random.Random(7).shuffle(texts)
    if len(texts) < n:
        raise SystemExit(f"there are {len(texts)} texts, fewer than {n}")
    return texts[:n]


# ---- the bare loop


def _bare_process(pipe, folder, threads, texts):
    encoder = Encoder(folder, threads)
    encoder(texts[:AT_ONCE])
    pipe.send("ready")
    pipe.recv()
    pipe.send(np.concatenate([encoder(texts[i:i + BATCH]) for i in range(0, len(texts), BATCH)]))


def bare(texts, folder, processes, threads):
    """(vectors, seconds without the loading of models)."""
    context = multiprocessing.get_context("spawn")
    pipes, running = [], []
    for k in range(processes):
        here, there = context.Pipe()
        running.append(context.Process(target=_bare_process, args=(there, str(folder), threads, texts[k::processes])))
        running[-1].start()
        there.close()
        pipes.append(here)
    for pipe in pipes:
        assert pipe.recv() == "ready"
    begin = time.monotonic()
    for pipe in pipes:
        pipe.send("go")
    parts = [pipe.recv() for pipe in pipes]
    seconds = time.monotonic() - begin
    for p in running:
        p.join()
    out = np.empty((len(texts), WIDTH), np.float32)
    for k, part in enumerate(parts):
        out[k::processes] = part
    return out, seconds


def choose_shape(texts, folder):
    """Processes and threads of the faster bare loop, by a twentieth of the texts."""
    some = texts[:max(2 * BATCH, len(texts) // 20)]
    speed = {shape: len(some) / bare(some, folder, *shape)[1] for shape in ((2, 1), (1, 2))}
    print(f"bare loop: 2 processes of 1 thread {speed[2, 1]:.0f} texts/s, 1 process of 2 threads {speed[1, 2]:.0f} texts/s")
    return max(speed, key=speed.get)


# ---- with brant


def make_model(folder, loads, processes):
    """loads: a folder with a file for each time that the model was loaded."""
    import brant

    @brant.cls(concurrency=processes, cpus=1)
    class Model:
        def __init__(self):
            self.encoder = Encoder(folder)
            open(os.path.join(loads, f"{os.getpid()}-{time.monotonic_ns()}"), "w").close()

        @brant.method(return_dtype=f"FLOAT[{WIDTH}]", batch=True, batch_size=BATCH)
        def embed(self, texts: list):
            return self.encoder(texts)

    return Model()


def embed(model, texts_file, out):
    """All texts of a Parquet file; gives the seconds."""
    import brant
    from brant import col
    begin = time.monotonic()
    brant.read_parquet(str(texts_file)).with_column("embedding", model.embed(col("text"))).write_parquet(str(out))
    return time.monotonic() - begin


def vectors(files):
    """By id."""
    import brant
    t = brant.read_parquet(str(files)).select("id", "embedding").sort("id").to_arrow().combine_chunks()
    return t["id"].to_numpy(), t["embedding"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, WIDTH)


def check_known(model):
    """Similarities of sentences that are known, through brant."""
    import brant
    from brant import col
    t = brant.from_pydict({"text": list(KNOWN)}).with_column("e", model.embed(col("text"))).to_arrow()
    found = dict(zip(t["text"].to_pylist(), np.array(t["e"].to_pylist())))
    first = found["That is a happy person"]
    right = True
    for text, want in KNOWN.items():
        similarity = float(first @ found[text])
        right &= abs(similarity - want) < 0.002
        print(f"  {similarity:.4f} (known: {want:.3f})  {text}")
    return right


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=1, help="both are run so often, in turn; medians")
    parser.add_argument("--dictionaries", default=",".join(DICTIONARIES))
    parser.add_argument("--dir", type=pathlib.Path, help="for texts and vectors; by default one that is removed at the end")
    options = parser.parse_args(arguments)
    if not (DEPS / "models" / "minilm" / ".version").exists():
        subprocess.run([str(ROOT / "deps" / "fetch.sh"), "models"], check=True)
    import brant
    folder = options.dir or pathlib.Path(tempfile.mkdtemp(prefix="brant-embed-"))
    (folder / "loads").mkdir(parents=True, exist_ok=True)
    model_folder = str(DEPS / "models" / "minilm")
    try:
        texts = read_texts(options.texts, DEPS, options.dictionaries.split(","))
        lengths = np.array([len(t) for t in texts])
        print(f"{len(texts)} texts, {lengths.sum() / 1e6:.1f} MB, of {lengths.min()} to {lengths.max()} letters (median {int(np.median(lengths))})")
        pq.write_table(pa.table({"id": pa.array(range(len(texts)), pa.int64()), "text": texts}), folder / "texts.parquet",
                       row_group_size=max(BATCH, len(texts) // 40))
        shape = choose_shape(texts, model_folder) if len(texts) >= 8 * BATCH else (2, 1)
        with brant.init(workers=2, threads=1, progress=False):
            model = make_model(model_folder, str(folder / "loads"), 2)
            begin = time.monotonic()
            right = check_known(model)
            print(f"workers, processes, models and four sentences: {time.monotonic() - begin:.1f} s")
            times, bare_times = [], []
            for k in range(options.rounds):
                want, seconds = bare(texts, model_folder, *shape)
                bare_times.append(seconds)
                out = folder / f"vectors-{k}"
                times.append(embed(model, folder / "texts.parquet", out))
            ids, got = vectors(out / "*.parquet")
        loads = len(list((folder / "loads").iterdir()))
        closest = float((got * want).sum(1).min()) if len(got) == len(want) else 0.0
        right &= len(ids) == len(texts) and bool((ids == np.arange(len(texts))).all()) and closest > 0.9999
        seconds, bare_seconds = statistics.median(times), statistics.median(bare_times)
        print(f"bare loop   {bare_seconds:7.1f} s  {len(texts) / bare_seconds:6.0f} texts/s")
        print(f"brant       {seconds:7.1f} s  {len(texts) / seconds:6.0f} texts/s, with Parquet read and written; models loaded: {loads}")
        print(f"brant / bare, median of {options.rounds}: {statistics.median(a / b for a, b in zip(times, bare_times)):.3f}; "
              f"least similarity of the same text's vectors: {closest:.6f}")
        print("right" if right else "WRONG")
    finally:
        if not options.dir:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
