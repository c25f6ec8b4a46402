# SPDX-License-Identifier: Apache-2.0
"""Each of these was a bug in another engine."""
import os
import pathlib
import signal
import threading

import brantlib
import faults
import harness
import nodes
import paths
import pytest
import workload
from harness import wait_for

QUERIES = workload.all_queries()
SHORT = pytest.mark.short


def first_short(*values):
    """Of these the first one is in CI's set."""
    return [pytest.param(values[0], marks=SHORT), *values[1:]]


def query(name, **settings):
    q = QUERIES[name]
    return workload.Query(q.name, q.sql, q.ordered, {**q.settings, **settings}, q.indeterminate)


# ---- a fetch failure was turned into text on its way: the map stage was never run again


@SHORT
def test_fetch_failure_runs_the_map_stage_again(make_cluster, check, mode):
    run = check(make_cluster(mode=mode, relays=True), "group", "kill-worker:w2@bytes#400000")
    assert any(stage == 0 for stage, _ in run.again()), run.summary()
    failed = [e for e in run.of("task_failed") if e["code"] != "CANCELLED"]  # readers of what was lost are told to stop
    assert {(e["code"], e["blame"]) for e in failed} <= {("FETCH", "FETCH")}, failed


@SHORT
def test_damage_names_the_output_that_is_made_again(make_cluster, check):
    """A bad checksum costs one output, not the worker and not the query."""
    run = check(make_cluster(), "spill", "flip-files:owner@stage_done#1", again=True)
    assert not run.of("worker_lost") and not run.of("executor_lost")
    hurt = {(e["lost_stage"], e["lost_task"]) for e in run.of("task_failed") if e["has_lost"]}
    assert hurt and hurt <= set(run.again()), (hurt, run.again())


# ---- all executors dead: the job hung


@SHORT
def test_all_executors_die_at_once(make_cluster, check, mode):
    run = check(make_cluster(mode=mode), "join", "kill-executor:all@task_started#6")
    assert len(run.of("executor_lost")) >= 4 and not run.of("worker_lost")


def test_all_workers_die_and_one_comes(make_cluster, check, mode):
    c = make_cluster(mode=mode)
    c.watchers.append(lambda e: c.add() if e["type"] == "worker_lost" and e["worker"] == 4 else None)
    run = check(c, "chain", "kill-worker:all@task_done#20", again=True)
    assert len(run.of("worker_lost")) == 4


@SHORT
def test_all_workers_die_and_none_comes(make_cluster, check, mode):
    run = check(make_cluster(mode=mode, settings={"no_worker_ms": "2000"}), "chain", "kill-worker:all@task_done#20", allow={"LOST"})
    assert run.error and "worker" in run.error.message and run.seconds < 20, run.error


# ---- a nondeterministic repartition was run again in part


@pytest.mark.parametrize("when", first_short("task_done.s1#3", "task_started.s1#2", "stage_done#1"))
def test_random_repartition_is_not_mixed(make_cluster, check, mode, when):
    """Each row goes to another partition in each attempt. What has read a dead attempt runs again too."""
    run = check(make_cluster(mode=mode), "random", f"kill-worker:owner@{when}", again=None if mode == "eager" else True)
    if when.startswith("task_done.s1") and mode == "staged":
        before = {(e["stage"], e["task"]) for e in run.of("task_done")[:8 + 3]}
        if any(stage == 0 for stage, _ in run.again()):
            assert {t for t in before if t[0] == 1} <= set(run.again()), (before, run.again())


# ---- a worker killed in the middle of a query: 0 rows and no error


@pytest.mark.parametrize("when", first_short("task_done#8", "task_assigned#1", "task_started#3", "task_done#16", "stage_done#2"))
def test_worker_dies_and_all_rows_come(make_cluster, check, mode, when):
    run = check(make_cluster(mode=mode), "group", f"kill-worker:{'owner' if 'done' in when else 'actor'}@{when}")
    assert run.table.num_rows == 150_000 and len(run.of("worker_lost")) <= 1


# ---- a released shuffle was answered as if it were empty


@SHORT
def test_released_outputs_are_refused(make_cluster, answers):
    """The tickets of a query that is over: all rows as long as they are there, then an error; never an answer without rows."""
    fl = pytest.importorskip("pyarrow.flight")
    c, tickets = make_cluster(), []
    auth = fl.FlightCallOptions(headers=[(b"authorization", b"Bearer " + nodes.SECRET.encode())], timeout=20)
    clients = [fl.connect(f"grpc://127.0.0.1:{w.port}") for w in c.workers]

    def look(e):
        if e["type"] == "task_done" and e["stage"] == 1 and not tickets:
            tickets.extend((w, i) for w in clients for i in w.list_flights(options=auth) if i.descriptor.path[1] == b"s0")

    c.watchers.append(look)
    run = faults.Run(c, QUERIES["group"]).go()
    assert run.error is None and answers.difference(QUERIES["group"], run.table) is None
    assert tickets and sum(i.total_records for _, i in tickets) >= 600_572

    def refused():
        left = []
        for w, info in tickets:
            try:
                n = w.do_get(info.endpoints[0].ticket, auth).read_all().num_rows
            except (fl.FlightError, OSError, KeyError):
                continue
            assert n == info.total_records, f"{n} of {info.total_records} rows, without an error"
            left.append(info)
        tickets[:] = [(w, i) for w, i in tickets if i in left]
        return not tickets

    wait_for(refused, 10, "outputs of a query that is over are refused")
    for w in clients:
        w.close()
    c.close()
    c.over = True


# ---- a retried report raced a read


@pytest.mark.parametrize("share", first_short(3, 2))
def test_reports_are_cut_and_come_again(make_cluster, check, mode, share):
    """The coordinator's answer to a report is lost (its connection is reset there) while its tasks are read already."""
    c = make_cluster(mode=mode, link_relay=True)
    before = [r.bytes for r in c.links]
    check(c, "chain", close=False)
    told = min(r.bytes - b for r, b in zip(c.links, before))
    c.links[0].arm(told // share, "reset")
    c.links[1].delay = 0.003
    run = check(c, "chain")
    assert c.links[0].fired.is_set() and run.stats.workers_lost <= 1


def test_late_answers_of_a_worker_that_was_away(make_cluster, check, mode):
    """It stops while its tasks run, is declared lost, goes on, and reports what it did: nobody takes that."""
    c = make_cluster(mode=mode, settings={"worker_silent_ms": "1500"})
    run = check(c, "window", "stop-worker:actor@task_started#6", replace=True)
    assert len(run.lost_workers()) == 1, run.summary()


# ---- join inputs were sharded over N and over N-1 workers


@pytest.mark.parametrize("partitions, fault", [pytest.param("0", "kill-worker:owner", marks=SHORT)] + [
    (p, f) for p in ("0", "7") for f in ("kill-worker:owner", "join-worker:other", "term-worker:owner")][1:])
def test_cluster_changes_between_two_inputs_of_a_join(make_cluster, check, mode, fault, partitions):
    run = check(make_cluster(mode=mode), query("join", partitions=partitions), f"{fault}@stage_done#1")
    parts = {e["stage"]: e["tasks"] for e in run.of("stage_done")}
    assert len(parts) == 3


# ---- a missing partition was skipped


@pytest.mark.parametrize("how", first_short("empty", "unlink", "cut"))
def test_missing_shuffle_files(make_cluster, check, mode, how):
    check(make_cluster(mode=mode), "spill", f"{how}-files:owner@{'stage_done' if mode == 'staged' else 'task_done.s1'}#1",
          again=True if how != "unlink" and mode == "staged" else None)


@SHORT
def test_missing_files_of_a_shared_directory(make_cluster, check, box, mode):
    """They outlive workers, not those who remove files."""
    shared = box.dir / "shared"
    shared.mkdir()
    c, gone = make_cluster(mode=mode, settings={"shuffle_backend": "files", "shuffle_dir": str(shared)}), []

    def remove(e):
        if e["type"] == "stage_done" and e["stage"] == 0 and not gone:
            gone.extend(paths.found(shared, "**/s0/*.map")[:2])
            for p in gone:
                p.unlink()

    c.watchers.append(remove)
    run = check(c, "group", again=True, close=False, justify=False)
    assert len(gone) == 2 and all(stage == 0 for stage, _ in run.again()), run.again()
    wait_for(lambda: not paths.found(shared, "**/*.map"), 5, "the query's files are gone")
    c.close()
    c.over = True
    assert not paths.sizes(shared, "**/*"), paths.found(shared, "**/*")


# ---- ids of two jobs clashed in one directory


@pytest.mark.parametrize("backend", first_short("files", "flight"))
def test_two_sessions_share_a_directory(make_cluster, answers, box, backend):
    """The same query at the same time, from two coordinators, over the same directories; a worker of one dies."""
    shared = box.dir / "shared"
    shared.mkdir()
    settings = {"shuffle_backend": "files", "shuffle_dir": str(shared)} if backend == "files" else None
    clusters = [make_cluster(workers=2, settings=settings), make_cluster(workers=2, settings=settings)]
    runs = [faults.Run(clusters[0], QUERIES["spill"], ["kill-worker:owner@stage_done#1"]), faults.Run(clusters[1], QUERIES["spill"])]
    threads = [threading.Thread(target=r.go) for r in runs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert runs[0].fired() and runs[0].query is runs[1].query
    for r in runs:
        assert r.error is None, r.error
        assert answers.difference(r.query, r.table) is None, r.summary()
    assert not runs[1].again() and not runs[1].of("worker_lost"), runs[1].summary()
    clusters[0].close(leftovers=False)  # workers of the other one are still there
    clusters[1].close(swept=clusters[0].workers)
    for c in clusters:
        c.over = True
    assert not paths.sizes(shared, "**/*"), paths.found(shared, "**/*")


# ---- files were left after a failure


FAILING = "select k, max(case when k % 100 = 7 then error('a bad row: ' || c) else c end) as c from ({}) group by k"


@pytest.mark.parametrize("backend, how", [pytest.param("flight", "error", marks=SHORT), ("flight", "cancel"), ("files", "error"), ("files", "cancel")])
def test_no_files_after_a_failure(make_cluster, check, box, mode, backend, how):
    """Nothing of a failed query is left on any worker while the cluster lives, and the next query is right."""
    shared = box.dir / "shared"
    shared.mkdir()
    c = make_cluster(mode=mode, settings={"shuffle_backend": "files", "shuffle_dir": str(shared)} if backend == "files" else None)
    spill = QUERIES["spill"]
    for k, v in spill.settings.items():
        c.session.set(k, v)
    on_disk, handle = [], []

    def look(e):
        if e["type"] in ("stage_done", "task_started"):
            on_disk.append(len(files()))
        if how == "cancel" and e["type"] == "task_started" and e["stage"] == 1 and on_disk[-1]:
            cancel.set()

    def files():
        found = [pathlib.Path(d, f) for w in c.workers for t in w.temp.glob(f"brant-*-w{w.pid}/shuffle") for d, _, fs in os.walk(t) for f in fs]
        return found + [pathlib.Path(d, f) for d, _, fs in os.walk(shared) for f in fs if f.endswith(".map")]

    cancel = threading.Event()
    c.watchers.append(look)
    q = c.session.submit(FAILING.format(spill.sql) if how == "error" else spill.sql)
    handle.append(q)
    t = threading.Thread(target=lambda: (cancel.wait(30), q.cancel() if how == "cancel" else None))
    t.start()
    with pytest.raises(brantlib.BrantError) as e:
        q.table()
    cancel.set()
    t.join()
    q.free()
    assert e.value.code == ("CANCELLED" if how == "cancel" else "EXECUTION"), e.value
    assert max(on_disk) > 0, "nothing was on disk: this test tested nothing"
    wait_for(lambda: not files(), 5, "files of the failed query are gone")
    c.watchers.remove(look)
    check(c, "group")


def test_no_files_after_all_were_killed(make_cluster, check, box):
    """SIGKILL of every worker in the middle: the next ones that start there remove what is left."""
    c = make_cluster(settings={"no_worker_ms": "1000"})
    run = check(c, "spill", "kill-worker:all@stage_done#1", allow={"LOST"}, close=False)
    assert run.error
    assert [w for w in c.workers if w.files()], "nothing was on disk: this test tested nothing"
    c.close()
    c.over = True
    assert all(w.command.code == -signal.SIGKILL for w in c.workers) and not harness.marked(box.mark)
