# SPDX-License-Identifier: Apache-2.0
"""Functions that bring much along: what is too large for a message is fetched by each worker, once, and given to its processes."""
import os
import re
import signal
import time

import brant
import numpy as np
import pytest
from test_udf import run


@pytest.fixture(scope="module")
def s():
    with brant.Session(workers=3, threads=1, memory=1 << 30, distribute="always", settings={"split_bytes": "1KiB"}) as s:
        yield s


def captured(mib):
    """A function over an array of that size, whose every value counts, and what it gives for 0 … 9."""
    weights = np.random.default_rng(mib).integers(0, 1 << 40, mib << 17)

    @brant.func(return_dtype="BIGINT")
    def lookup(i: int):
        return int(weights[i::10].sum() % 1000003)

    return lookup, [int(weights[i::10].sum() % 1000003) for i in range(10)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Nine files, so that each of three workers has tasks."""
    d = tmp_path_factory.mktemp("payloads")
    for n in range(9):
        brant.from_pydict({"n": [n] * 10, "i": list(range(10))}).write_parquet(str(d / f"{n}"))
    return f"'{d}/*/*.parquet'"


@pytest.mark.parametrize("mib", [1, 15, 64])
def test_a_captured_array(s, files, mib):
    f, want = captured(mib)
    workers = set()
    s.subscribe(lambda text: workers.update(re.findall('"type":"task_started".*"worker":([0-9]+)', text)))
    t = run(s, f"select n, i, {{0}}(i) as x from {files} order by n, i", f)
    assert t.column("x").to_pylist() == want * 9
    assert len(workers) == 3


def test_many_at_once(s, files):
    """Several functions, one of them a method with state, in one query; and the same again, which fetches nothing."""
    (f, first), (g, second) = captured(20), captured(21)
    table = np.arange(3 << 20)

    @brant.cls
    class Model:
        def __init__(self, weights):
            self.weights = weights

        @brant.method(return_dtype="BIGINT")
        def at(self, i: int):
            return int(self.weights[-1 - i])

    for _ in range(2):
        t = run(s, f"select n, i, {{0}}(i) as x, {{1}}(i) as y, {{2}}(i) as z from {files} order by n, i", f, g, Model(table).at)
        assert t.column("x").to_pylist() == first * 9 and t.column("y").to_pylist() == second * 9
        assert t.column("z").to_pylist() == [(3 << 20) - 1 - i for i in range(10)] * 9


def test_a_worker_that_comes_later(files):
    """It is told of the function, fetches it too, and takes over."""
    f, want = captured(30)
    lost, joined = [], []

    def on_event(text):
        if '"type":"worker_joined"' in text:
            joined.append(int(re.search('"pid":([0-9]+)', text).group(1)))
        if '"type":"worker_lost"' in text:
            lost.append(text)

    with brant.Session(workers=1, threads=1, memory=1 << 30, distribute="always", settings={"split_bytes": "1KiB"}) as one:
        one.subscribe(on_event)
        sql = f"select n, i, {{0}}(i) as x from {files} order by n, i"
        assert run(one, sql, f).column("x").to_pylist() == want * 9
        os.kill(joined[0], signal.SIGKILL)
        end = time.monotonic() + 30
        while (not lost or len(joined) < 2) and time.monotonic() < end:
            time.sleep(0.05)
        assert run(one, sql, f).column("x").to_pylist() == want * 9
        assert len(joined) == 2


def test_too_much(s):
    """More than 1 GiB is refused before it is looked at."""
    f, _ = captured(1)
    made = f._function(None, f._arguments)
    made.payload, made.name = bytes((1 << 30) + 1), "too_much"  # zeros that nobody touches
    with pytest.raises(brant.Error, match=r"takes 1073741825 bytes with all that it refers to, more than 1073741824"):
        made.register(s)
