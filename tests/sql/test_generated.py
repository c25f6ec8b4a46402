# SPDX-License-Identifier: Apache-2.0
"""A fixed set of generated queries (tests/sql/generate), spread over configurations, against one-process DuckDB. A failure prints its seed:
`python tests/sql/generate/run.py --one SEED` shows it again and makes it smaller. `make sqlgen SEEDS=N` runs more."""
import collections
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "generate"))
import run as generated  # noqa: E402

# seeds 0 … 999, fifty a test; those of one mode follow each other, so that two sessions do for all
SEEDS = sorted(range(1000), key=lambda s: (generated.mode_of(s), s))
CHUNKS = [SEEDS[i:i + 50] for i in range(0, len(SEEDS), 50)]


def test_configurations_are_dealt_evenly():
    counts = collections.Counter((generated.mode_of(s), generated.settings_of(s)["partitions"]) for s in SEEDS)
    assert counts == {(mode, n): len(SEEDS) / 8 for mode in ("staged", "eager") for n in (1, 2, 7, 64)}


@pytest.fixture(scope="module")
def runner():
    r = generated.Runner(0)
    yield r
    r.close()


@pytest.mark.parametrize("chunk", CHUNKS, ids=[f"{generated.mode_of(c[0])}-{c[0]}" for c in CHUNKS])
def test_seeds(runner, chunk):
    counts, failures = collections.Counter(), []
    for seed in chunk:
        q, outcome = runner.seed(seed)
        counts[outcome.kind] += 1
        if outcome.failed:
            failures.append(generated.describe(seed, runner, q.sql, outcome))
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)
    # most of them must say something: DuckDB's own errors, unclear answers and slow ones are few
    assert counts["same"] >= 0.8 * len(chunk), counts


def test_asof_null_on_the_left_matches_nothing(runner):
    """DuckDB's sorted ASOF join finds NULL a match, its loop for few rows doesn't: the answer may not depend on a task's rows."""
    runner.configure(0)
    query = ("SELECT a.id, a.ts, b.o FROM (SELECT * FROM t1 WHERE {}) a ASOF JOIN (SELECT s, ts AS o FROM t2 WHERE ts IS NOT NULL GROUP BY ALL) b "
             "ON a.s = b.s AND a.ts >= b.o")
    want, error = runner.judge.answer(query.format("ts IS NOT NULL"))
    got, mine = runner.brant(query.format("true"))
    assert (error, mine) == (None, None) and len(want.rows) > 40
    assert generated.difference(got, want, False) is None


def test_a_judge_that_does_not_answer_is_replaced(runner, monkeypatch):
    monkeypatch.setattr(generated.judge, "DEAF_S", 0.2)
    assert runner.judge.answer("SELECT count(*) FROM range(100000000000)") == (None, None)  # the interrupt would come later
    monkeypatch.undo()
    assert runner.judge.answer("SELECT 42 AS c")[0].rows == [(42,)]
    assert runner.judge.answer("SELECT count(*) FROM range(100000000000) a, range(1000) b") == (None, None)  # interrupted


def test_key_that_fails_is_not_computed_for_an_empty_side(runner):
    """DuckDB doesn't cast the join keys of one side when the other is empty; neither may an exchange fail over them."""
    runner.configure(982)
    outcome = runner.check("SELECT max(a.ts) FROM t7 a WHERE a.s LIKE '%é' AND NOT EXISTS (SELECT 1 FROM t2 b WHERE b.d38 = a.d18)", False)
    assert outcome.kind == "same", outcome
