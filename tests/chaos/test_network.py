# SPDX-License-Identifier: Apache-2.0
"""Four workers, each in a network namespace of its own; links that are cut, refuse, or are slow."""
import faults
import pytest
import workload
from netns import Network

QUERIES = workload.all_queries()


@pytest.fixture
def network():
    n = Network(4)
    yield n
    n.remove()


@pytest.fixture
def lan(make_cluster, network, mode):
    """Lost after 3 s instead of 10."""
    return make_cluster(mode=mode, network=network, settings={"worker_silent_ms": "3000", "probe_ms": "1000"})


def strike(cluster, query, answers, type, nth, do, stage=None, capsys=None):
    """Runs it; do() in the callback of the nth such event."""
    seen = []

    def look(e):
        if e["type"] == type and stage in (None, e.get("stage")):
            seen.append(e)
            if len(seen) == nth:
                do()

    cluster.watchers.append(look)
    run = faults.Run(cluster, QUERIES[query]).go()
    print(run.summary())
    assert len(seen) >= nth, "the fault never fired"
    assert run.error is None, f"{run.error} {run.summary()}"
    assert answers.difference(run.query, run.table) is None, f"{answers.difference(run.query, run.table)} {run.summary()}"
    return run


def close(cluster):
    cluster.close()
    cluster.over = True


@pytest.mark.parametrize("how", ["silent", "down"])
@pytest.mark.parametrize("query, type, nth", [pytest.param("join", "stage_done", 1, marks=pytest.mark.short), ("chain", "task_done", 20)])
def test_a_worker_is_cut_off(lan, network, answers, how, query, type, nth):
    run = strike(lan, query, answers, type, nth, lambda: getattr(network, how)(2))
    assert len(run.lost_workers()) == 1 and run.seconds < 40, run.summary()
    close(lan)


@pytest.mark.parametrize("query, type, nth", [("join", "stage_done", 1), ("chain", "task_started", 12)])
@pytest.mark.parametrize("how, seconds", [("refuse", 40), ("ignore", faults.DEADLINE_S)])
def test_two_workers_without_a_link(lan, network, answers, how, seconds, query, type, nth):
    """Both reach everybody else: nobody is dead, and the query finds a way. Silence is noticed after 30 s, each time."""
    run = strike(lan, query, answers, type, nth, lambda: (getattr(network, how)(2, 3), getattr(network, how)(3, 2)))
    close(lan)
    assert run.seconds < seconds, run.summary()


def test_slow_link(lan, network, answers):
    network.slow(2)
    run = strike(lan, "group", answers, "task_started", 1, lambda: None)
    assert not run.lost_workers(), run.summary()
    close(lan)
