# SPDX-License-Identifier: Apache-2.0
"""Chaos: real processes, faults on events. `-m short` is CI's set."""
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "lib", HERE.parent / "cluster"):
    sys.path.insert(0, str(folder))
import faults  # noqa: E402
import harness  # noqa: E402
import nodes  # noqa: E402
import workload  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "short: in the set of CI; `make chaos` runs everything")


@pytest.fixture
def box(tmp_path):
    b = harness.Box(tmp_path)
    yield b
    b.close()


@pytest.fixture(scope="session")
def answers():
    return workload.Answers("0.1")


@pytest.fixture(params=nodes.MODES)
def mode(request):
    return request.param


@pytest.fixture
def make_cluster(box, answers):
    """make_cluster(relays=…, …): a cluster with the tables as views; closed and looked over for leftovers when the test passed."""
    made = []

    def make(**kw):
        c = nodes.Cluster(box, **kw)
        made.append(c)
        for v in answers.views:
            c.session.run(v)
        return c

    yield make
    for c in made:
        if not getattr(c, "over", False):
            c.close(check=False)


@pytest.fixture
def check(answers, capsys):
    """check(cluster, query, *faults): runs it, prints what happened, asserts that every fault fired and that the answer is right."""
    known = workload.all_queries()

    def check(c, name, *texts, again=None, close=True, replace=False, allow=None, justify=True):
        q = known[name] if isinstance(name, str) else name
        run = faults.Run(c, q, texts, replace=replace).go()
        with capsys.disabled():
            print(f"\n  {q.name}: {run.summary()}", end="", flush=True)
        assert run.fired(), f"a fault never fired: {run.summary()}"
        if run.error is not None and not run.handed_out():
            assert allow and run.error.code in allow, f"{run.error}\n{run.summary()}"
        elif run.error is None:
            assert answers.difference(q, run.table) is None, f"{answers.difference(q, run.table)}\n{run.summary()}"
        if justify:
            assert run.unjustified() == [], run.summary()
        if again is not None:
            assert bool(run.again()) == again, run.summary()
        if close:
            c.close()
            c.over = True
        return run

    return check
