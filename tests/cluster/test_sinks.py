# SPDX-License-Identifier: Apache-2.0
"""COPY … TO while processes die: all of it or nothing, nothing beside it, and one message. Faults follow what is seen (a staged file, a
rename), never a clock. tests/chaos has more of them on four workers."""
import os
import signal
import subprocess

import duckdb
import paths
import pytest
from harness import Live, alive, assert_error, free_port, wait_for

SLOW = "SELECT l_orderkey, l_linenumber, md5(md5(l_comment)) AS h, l_returnflag AS f FROM '{}/lineitem/*.parquet'"
# Kills its process, named brant, before the NTH rename of a staged file or journal.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
static _Atomic int calls;
int rename(const char *from, const char *to) {
  int (*real)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
  const char *nth = getenv("TEST_KILL_AT_RENAME");
  int mine = nth && strstr(from, "/.brant-") && strcmp(program_invocation_short_name, "brant") == 0;
  if (mine && ++calls == atoi(nth)) raise(SIGKILL);
  return real(from, to);
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    d = tmp_path_factory.mktemp("shim")
    (d / "s.c").write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", d / "s.so", d / "s.c", "-ldl"], check=True)
    return d / "s.so"


@pytest.fixture(scope="module")
def query(small):
    return SLOW.format(small)


@pytest.fixture(scope="module")
def right(query):
    return duckdb.sql(f"SELECT count(*), sum(hash(l_orderkey, l_linenumber, h, f)) FROM ({query})").fetchone()


def content(target):
    files = f"read_parquet('{target}/**/*.parquet', hive_partitioning=true)"
    return duckdb.sql(f"SELECT count(*), sum(hash(l_orderkey, l_linenumber, h, f)) FROM {files}").fetchone()


def everything(target):
    return [str(p.relative_to(target)) for p in paths.found(target, "**/*")]


def a_staged_file(target, seconds=20):
    """Waits until a task has begun to write one."""
    return wait_for(lambda: paths.found(target, ".brant-*/q*/**/f-*"), seconds, "a staged file")


def writer_of(live, target):
    """The worker that writes one now."""
    task = next(part for part in a_staged_file(target)[0].relative_to(target).parts if part.startswith("q"))
    return wait_for(lambda: [e["worker"] for e in live.all if e["type"] == "task_started" and f".t{e['task']}." in task], 10, "its start")[0]


def to(target, options="FORMAT parquet, PARTITION_BY f"):
    return f"TO '{target}' ({options})"


# ---- those who write


@pytest.mark.parametrize("who", ["executor", "worker"])
def test_killed_while_it_writes(box, query, right, who):
    target = box.dir / "out"
    with Live(box, workers=3, memory=512 << 20, settings={"split_bytes": "200000"}) as live:
        q = live.session.submit(f"COPY ({query}) {to(target)}")
        worker = writer_of(live, target)
        os.kill(live.executor_pid(worker) if who == "executor" else live.worker_pid(worker), signal.SIGKILL)
        listed = q.table().to_pylist()
        stats = q.stats()
        q.free()
    assert stats.executors_lost + stats.workers_lost >= 1
    assert content(target) == right
    files = [p for p in everything(target) if not os.path.isdir(target / p)]
    assert files == sorted(f["file"] for f in listed)
    assert sum(f["rows"] for f in listed) == right[0]
    box.assert_clean()


def test_a_zombie_adds_nothing(box, query, right):
    """A worker is stopped while its executor writes, counts as lost, and both go on when the files are there."""
    target = box.dir / "out"
    port = free_port()
    workers = [box.worker(f"127.0.0.1:{port}", secret="sinks") for _ in range(3)]
    settings = {"split_bytes": "200000", "worker_silent_ms": "1500"}
    with Live(box, workers=0, external_workers=3, listen_port=port, secret="sinks", settings=settings) as live:
        q = live.session.submit(f"COPY ({query}) {to(target)}")
        stopped = [live.executor_pid(w := writer_of(live, target)), live.worker_pid(w)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        listed = q.table().to_pylist()
        there = everything(target)
        assert content(target) == right and sum(f["rows"] for f in listed) == right[0]
        assert live.of("worker_lost")
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        wait_for(lambda: not alive(stopped[0]), 20, "the end of the old executor")
        assert everything(target) == there and not list(target.glob(".brant-*"))
        q.free()
    for w in workers:
        w.signal(signal.SIGTERM)
        w.end()
    assert everything(target) == there
    box.assert_clean()


# ---- the one who commits


@pytest.mark.parametrize("nth,committed", [(1, False), (2, True), (4, True)])
def test_coordinator_is_killed_while_it_commits(box, query, right, shim, nth, committed):
    target = box.dir / "out"
    c = box.sql(f"COPY ({query}) {to(target)}", env={"LD_PRELOAD": str(shim), "TEST_KILL_AT_RENAME": str(nth)}).end()
    assert c.code == -signal.SIGKILL, c.text()
    assert len(list(target.glob(".brant-*"))) == 1
    r = box.brant("recover", target).end()
    assert r.code == 0, r.text()
    assert f"{int(committed)} commits finished, {int(not committed)} removed" in r.out.decode()
    assert not list(target.glob(".brant-*"))
    if committed:
        assert content(target) == right
    else:
        assert everything(target) == []
    box.assert_clean(35)


def test_coordinator_is_killed_before_the_old_file_is_replaced(box, query, shim):
    """One file: the old one stays, the temporary one goes with the next COPY beside it."""
    target = box.dir / "x.csv"
    target.write_text("old")
    c = box.sql(f"COPY ({query}) TO '{target}'", env={"LD_PRELOAD": str(shim), "TEST_KILL_AT_RENAME": "1"}).end()
    assert c.code == -signal.SIGKILL and target.read_text() == "old"
    assert len(list(box.dir.glob(".brant-*"))) == 1
    c = box.sql(f"COPY (SELECT 1 AS a) TO '{box.dir}/y.csv'").end()
    assert c.code == 0 and (box.dir / "y.csv").read_text() == "a\n1\n", c.text()
    assert target.read_text() == "old" and not list(box.dir.glob(".brant-*"))
    box.assert_clean(35)


@pytest.mark.parametrize("single", [False, True])
def test_interrupted(box, query, single):
    target = box.dir / ("x.parquet" if single else "out")
    c = box.sql(f"COPY ({query}) {to(target, 'FORMAT parquet' if single else 'FORMAT parquet, PER_THREAD_OUTPUT')}")
    if single:
        wait_for(lambda: paths.found(box.dir, ".brant-*/x.parquet"), 20, "the file as it is written")
    else:
        a_staged_file(target)
    c.signal(signal.SIGINT)
    c.end()
    assert c.code == 130, c.text()
    assert not target.exists() and not list(box.dir.glob(".brant-*"))
    box.assert_clean()


# ---- full and forbidden targets


@pytest.fixture
def small_disk(tmp_path):
    d = tmp_path / "disk"
    d.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "brant-test", d]).returncode != 0:
        pytest.skip("only root can mount a small disk")
    yield d
    subprocess.run(["umount", "-l", d], check=True)


@pytest.mark.parametrize("name", ["out/", "x.parquet"])
def test_disk_full(box, query, small_disk, name):
    (small_disk / "old.txt").write_text("old")
    c = box.sql(f"COPY ({query}) TO '{small_disk}/{name}' (FORMAT parquet)").end()
    assert_error(c, "space")
    assert everything(small_disk) == ["old.txt"]


def test_two_writers_of_one_target(box, query, right):
    """The second commit into an empty directory finds it full; with APPEND both are there."""
    target = box.dir / "out"
    two = [box.sql(f"COPY ({query}) {to(target, 'FORMAT parquet, PER_THREAD_OUTPUT')}", workers=1) for _ in range(2)]
    codes = sorted(c.end().code for c in two)
    assert codes == [0, 1], [c.text() for c in two]
    assert content(target) == right and not list(target.glob(".brant-*"))
