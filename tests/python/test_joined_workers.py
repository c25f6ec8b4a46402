# SPDX-License-Identifier: Apache-2.0
"""Workers that somebody else starts, with a port that the session chose: brant_listen, BRANT_PYTHON. What brant.init("ray") leans on, without Ray."""
import contextlib
import os
import subprocess
import sys
import time

import brant
import pytest
from brant import col, ray_node

SECRET = "of-the-test"


@contextlib.contextmanager
def joined(tmp_path, **env):
    """A session with one worker that joined it from elsewhere."""
    with brant.Session(listen=("127.0.0.1", 0), external_workers=1, secret=SECRET, distribute="always", progress=False) as s:
        s.interpreter = None  # of functions: the worker's
        port = s._native.listen()
        assert s._native.listen() == port > 0
        read, write = os.pipe()
        config = {"join": f"127.0.0.1:{port}", "uri_host": "127.0.0.1", "threads": 1, "memory": 256 << 20, "temp_dir": str(tmp_path), "secret": SECRET}
        args = ray_node.command(config, read)
        assert SECRET not in " ".join(args)
        p = subprocess.Popen(args, env={**ray_node.environment(config), **env}, pass_fds=(read,), stdin=subprocess.DEVNULL)
        os.close(read)
        try:
            yield s
        finally:
            os.close(write)
            assert p.wait(20) in (0, 3)
    assert not list(tmp_path.iterdir())


def executable(session):
    @brant.func(return_dtype=str, max_retries=0)
    def where(x):
        import sys
        return sys.executable

    return brant.sql("SELECT range AS x FROM range(100)", session=session).select(w=where(col("x"))).distinct().to_pydict()["w"]


def test_port_before_the_first_query(tmp_path):
    with joined(tmp_path) as s:
        assert s.execute("SELECT count(*) AS n FROM range(100000)").arrow().to_pydict() == {"n": [100000]}
        assert executable(s) == [sys.executable]


def test_the_interpreter_is_the_workers(tmp_path):
    with joined(tmp_path, BRANT_PYTHON="/no/such/python") as s:
        with pytest.raises(brant.Error, match='cannot start "/no/such/python"'):
            executable(s)


def test_listen_where_nobody_may():
    with brant.Session(listen=("203.0.113.1", 0), external_workers=1, secret=SECRET) as s:
        with pytest.raises(brant.Error, match="203.0.113.1"):
            s._native.listen()
        with pytest.raises(brant.Error, match="203.0.113.1"):
            s._native.listen()


def test_keeper_starts_another(tmp_path):
    """A worker that can't join (nobody listens, wrong secret, killed) is started again; its last words are kept; stop() ends it."""
    with brant.Session(listen=("127.0.0.1", 0), external_workers=1, secret=SECRET, progress=False) as s:
        config = {"join": f"127.0.0.1:{s._native.listen()}", "uri_host": "127.0.0.1", "threads": 1, "memory": 256 << 20, "temp_dir": str(tmp_path),
                  "secret": "wrong"}
        keeper = ray_node.Keeper(config)
        try:
            end = time.monotonic() + 30
            while keeper.state()["starts"] < 2 and time.monotonic() < end:
                time.sleep(0.02)
            state = keeper.state()
            assert state["starts"] >= 2 and "exit code 1" in state["why"] and "secret" in state["why"]
        finally:
            keeper.stop()
        assert keeper.state()["pid"] is None
