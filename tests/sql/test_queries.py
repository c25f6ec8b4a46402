# SPDX-License-Identifier: Apache-2.0
"""Every query of queries/*.sql on three workers, in several configurations, against one-process DuckDB: rows, names, types; in the
default configuration also the stages of its plan, and that nothing runs as one task but what the file lists.

A configuration has one session for all queries. BRANT_ONLY=text runs the queries that hold the text.
"""
import json
import os
import pathlib
import re

import pytest

import brantlib
import files
import queries

FOLDER = pathlib.Path(__file__).parent / "queries"
NO_SHORTCUTS = {"broadcast_bytes": 0, "sort_one_task_rows": 0, "split_bytes": 20000}
CONFIGS = {
    "default": {},
    "partitions1": {**NO_SHORTCUTS, "partitions": 1},
    "partitions2": {**NO_SHORTCUTS, "partitions": 2, "shuffle_compression": "zstd"},
    "partitions7": {**NO_SHORTCUTS, "partitions": 7, "task_target_bytes": 4000, "shuffle_compression": "lz4"},
    "whole": {**NO_SHORTCUTS, "partitions": 3, "two_step_aggregate": "false"},
    "eager": {**NO_SHORTCUTS, "partitions": 3},
    "passes": {**NO_SHORTCUTS, "partitions": 2, "two_step_aggregate": "false", "task_passes": 3},
}
AGGREGATES = re.compile(r"group by|\b(count|sum|min|max|avg|any_value|list|string_agg|first|last|median|arg_m..|bool_...?|std\w*)\s*\(", re.I)
ALL = {path.stem: queries.read(path) for path in sorted(FOLDER.glob("*.sql"))}


def runs_in(config, query):
    """Where a configuration can change something: exchanges for partitions, aggregates for two_step_aggregate."""
    if query.only:
        return config in query.only
    least_stages = {"partitions1": 4, "partitions2": 2, "eager": 4, "passes": 3}.get(config, 0)
    return (query.stages or 9) >= least_stages and (config != "whole" or query.two_step or bool(AGGREGATES.search(query.sql)))


# in the order of the files: the configurations are the outer loop
CASES = [pytest.param(c, q, id=f"{c}-{q.file}-{q.line}") for c in CONFIGS for _, qs in ALL.values() for q in qs
         if runs_in(c, q) and os.environ.get("BRANT_ONLY", "") in q.sql]


@pytest.fixture(scope="module")
def duck():
    files.make()
    d = queries.Duck()
    for setup, _ in ALL.values():
        for sql in setup:
            d.execute(sql)
    return d


class Sessions:
    """One session at a time: that of the configuration whose turn it is."""

    def __init__(self):
        self.name, self.session = None, None

    def get(self, name):
        if name != self.name:
            self.close()
            self.session = brantlib.Session(workers=3, threads=1, distribute="always", mode="eager" if name == "eager" else "staged",
                                            settings={"TimeZone": "UTC", **CONFIGS[name]})
            self.name = name
            for setup, _ in ALL.values():
                for sql in setup:
                    self.session.run(sql)
        return self.session

    def close(self):
        if self.session is not None:
            self.session.close()
        self.name, self.session = None, None


@pytest.fixture(scope="module")
def sessions(duck):
    s = Sessions()
    yield s
    s.close()


def put_back(session, query, config):
    for name in query.settings:
        value = {"TimeZone": "UTC", **CONFIGS[config]}.get(name)
        session.run(f"RESET {name}") if value is None else session.set(name, value)


def run(session, query, config):
    if config == "default":
        surprises = queries.surprises(json.loads(session.explain(query.sql, False, True)), query)
        if surprises:
            pytest.fail("\n".join([query.sql, *surprises]), pytrace=False)
    table, stats = session.run(query.sql)
    if query.local is None:
        assert stats.distributed
        if config == "default":
            assert stats.stages == query.stages
    return table


def test_there_are_enough():
    assert sum(len(qs) for _, qs in ALL.values()) >= 150


@pytest.mark.parametrize("config, query", CASES)
def test_query(sessions, duck, config, query):
    session = sessions.get(config)
    assert not query.unknown, "the comment above the query is '?': fill it (tests/lib/queries.py)"
    for k, v in query.settings.items():
        session.set(k, v)
    try:
        if query.fails is not None:
            with pytest.raises(duck.error):
                duck.answer(query)
            with pytest.raises(brantlib.BrantError) as e:
                run(session, query, config)
            assert query.fails in e.value.message
            return
        table = run(session, query, config)
    finally:
        put_back(session, query, config)
    diff = queries.difference(duck.read(table), duck.answer(query), query.ordered, query.shape)
    if diff is not None:
        pytest.fail(f"{query.sql}\n{diff}", pytrace=False)
