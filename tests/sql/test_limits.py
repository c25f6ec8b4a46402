# SPDX-License-Identifier: Apache-2.0
"""A limit that is full: tasks that have not started read nothing, in both modes, and the rows are right whatever was left out."""
import json

import duckdb
import pytest

import brantlib

FILES, ROWS, SLOTS = 24, 1000, 3


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One row with id % 1000 = 7 a file."""
    d = tmp_path_factory.mktemp("limits")
    for i in range(FILES):
        duckdb.sql(f"""COPY (SELECT i AS id, i % 37 AS k, 's' || i AS s, [i, NULL] AS l, {{'a': i, 'b c': [{{'x': i::DECIMAL(9, 2)}}]}} AS st,
                             MAP {{i: 'v'}} AS m, to_days(i::INT) AS iv, (CASE WHEN i % 2 = 0 THEN 'even' ELSE 'odd' END) AS e,
                             uuid() AS u, '{{"a": 1}}'::JSON AS js, TIME '01:02:03' AS t, i::VARCHAR::BLOB AS b
                      FROM range({i * ROWS}, {(i + 1) * ROWS}) r(i)) TO '{d}/{i:02}.parquet'""")
    return d


@pytest.fixture(scope="module")
def t(files):
    return f"'{files}/*.parquet'"


class Watched(brantlib.Session):
    """It knows which tasks had nothing to read."""

    def __init__(self, **options):
        super().__init__(workers=SLOTS, threads=1, distribute="always", **options)
        self.tasks = []
        self.subscribe(lambda e: self.tasks.append(e) if e["type"] == "task_assigned" else None)

    def rows(self, sql):
        self.tasks.clear()
        table, stats = self.run(sql)
        assert stats.distributed
        return [tuple(r.values()) for r in table.to_pylist()]

    def read(self, stage=0):
        """(tasks of the stage that read, tasks that did not)."""
        mine = [e["enough"] for e in self.tasks if e["stage"] == stage]
        return mine.count(False), mine.count(True)


@pytest.fixture(scope="module", params=["staged", "eager", "auto"])
def session(request):
    with Watched(mode=request.param, settings={"partitions": 16, "split_bytes": "1KiB"}) as s:
        yield s


def most(n):
    """A task starts while fewer than n are done, and some are under way then."""
    return n - 1 + SLOTS


@pytest.mark.parametrize("limit", ["LIMIT 5", "LIMIT 3 OFFSET 2"])
def test_selective_filter(session, t, limit):
    got = session.rows(f"SELECT id FROM {t} WHERE id % 1000 = 7 {limit}")
    n = 5 if limit == "LIMIT 5" else 3
    assert len(set(got)) == n and all(i % 1000 == 7 for (i,) in got)
    read, not_read = session.read()
    assert 5 <= read <= most(5) and read + not_read == FILES


def test_not_enough_rows(session, t):
    """All is read when the limit is not full before."""
    assert len(session.rows(f"SELECT id FROM {t} WHERE id % 1000 = 7 LIMIT {FILES}")) == FILES
    assert session.rows(f"SELECT id FROM {t} WHERE id % 24000 = 23999 LIMIT 10") == [(23999,)]
    assert session.read() == (FILES, 0)
    assert session.rows(f"SELECT id FROM {t} WHERE id < 0 LIMIT 10") == []


def test_every_type(session, t):
    """What isn't read has the columns that the others have."""
    got = session.rows(f"SELECT *, e::ENUM ('even', 'odd') AS en, id::HUGEINT, id::BIT, [e::ENUM ('even', 'odd')], NULL FROM {t} WHERE id % 1000 = 7 LIMIT 4")
    assert session.read()[1] > 0
    assert len(got) == 4 and len({r[0] for r in got}) == 4
    for r in got:
        assert r[:4] == (r[0], r[0] % 37, f"s{r[0]}", [r[0], None]) and r[4]["b c"][0]["x"] == r[0] and r[7] == r[12] == "odd" and r[15] == ["odd"]


def test_union_all(session, t):
    """What the first branch gave counts for the second."""
    sql = f"SELECT * FROM (SELECT id FROM {t} WHERE id % 1000 = 7 UNION ALL SELECT -id FROM {t} WHERE id % 1000 = 8 UNION ALL SELECT 1) LIMIT 6"
    got = session.rows(sql)
    assert len(set(got)) == 6 and all(i % 1000 == 7 or -i % 1000 == 8 or i == 1 for (i,) in got)
    assert session.read(0)[0] + session.read(1)[0] <= most(6) and session.read(0)[1] + session.read(1)[1] > FILES


def test_two_limits_of_one_query(session, t):
    """Each counts for itself."""
    one, other = f"(SELECT id FROM {t} WHERE id % 1000 = 7 LIMIT 3)", f"(SELECT id FROM {t} WHERE id % 1000 = 8 LIMIT 20)"
    assert session.rows(f"SELECT count(*) FILTER (id % 1000 = 7), count(*) FILTER (id % 1000 = 8) FROM (FROM {one} UNION ALL FROM {other})") == [(3, 20)]
    same = f"(SELECT id FROM {t} WHERE id % 1000 = 7 LIMIT {{}})"
    assert session.rows(f"SELECT count(*), count(DISTINCT a.id), count(DISTINCT b.id) FROM {same.format(3)} a CROSS JOIN {same.format(3)} b") == [(9, 3, 3)]
    assert session.rows(f"SELECT count(*) FROM (FROM {same.format(24)} UNION ALL FROM {same.format(2)})") == [(26,)]


def test_behind_an_exchange(session, t):
    """Groups, distinct rows and a join's partitions are not made when there are enough."""
    got = session.rows(f"SELECT k, count(*) AS n FROM {t} WHERE id < 3700 GROUP BY k HAVING count(*) = 100 LIMIT 4")
    assert len({k for k, _ in got}) == 4 and {n for _, n in got} == {100}
    got = session.rows(f"SELECT DISTINCT id % 500 AS x FROM {t} LIMIT 20")
    last = max(e["stage"] for e in session.tasks) - 1
    assert len(set(got)) == 20 and session.read(last)[0] <= most(1) and session.read(last)[1] > 0
    got = session.rows(f"SELECT a.id, b.s FROM repartition((FROM {t}), 12, id) a JOIN repartition((FROM {t}), 12, id) b ON a.id = b.id LIMIT 7")
    assert len(set(got)) == 7 and all(s == f"s{i}" for i, s in got)


def test_above_a_limit(session, t):
    assert session.rows(f"SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM {t} WHERE id % 100 = 7 LIMIT 77)") == [(77, 77)]
    assert session.rows(f"SELECT max(c) FROM (SELECT count(*) AS c FROM (SELECT id FROM {t} LIMIT 500) GROUP BY id)") == [(1,)]
    assert session.rows(f"SELECT count(*) FROM {t} WHERE id IN (SELECT id FROM {t} WHERE id % 1000 = 1 LIMIT 9)") == [(9,)]


@pytest.mark.parametrize("where", ["random() < 2", "id % 1000 = 7 AND random() >= 0"])
def test_not_what_chance_makes(session, t, where):
    """A task that may give fewer rows when it is made again is no reason to leave out others."""
    assert len(session.rows(f"SELECT id FROM {t} WHERE {where} LIMIT 5")) == 5
    assert session.read() == (FILES, 0)


def test_not_where_the_order_says_which(session, t):
    assert session.rows(f"SELECT id FROM (SELECT id FROM {t} ORDER BY id DESC LIMIT 20000) LIMIT 3") == [(23999,), (23998,), (23997,)]
    assert session.rows(f"SELECT id FROM (FROM {t} ORDER BY id) WHERE id % 1000 = 7 LIMIT 3") == [(7,), (1007,), (2007,)]
    assert session.rows(f"SELECT id FROM {t} ORDER BY id LIMIT 3 OFFSET 23990") == [(23990,), (23991,), (23992,)]


def test_datasets(session):
    import pyarrow as pa
    session.register("held", pa.Table.from_batches([pa.record_batch({"id": list(range(i * 500, i * 500 + 500))}) for i in range(40)]))
    assert len(session.rows("SELECT id FROM held WHERE id % 500 = 7 LIMIT 5")) == 5
    session.drop_table("held")


def test_passes(t):
    """A task that would run in passes, too."""
    with Watched(settings={"partitions": 16, "task_passes": 3, "split_bytes": "1KiB"}) as s:
        assert len(set(s.rows(f"SELECT DISTINCT id % 500 AS x FROM {t} LIMIT 20"))) == 20


def test_it_is_said(session, t):
    text = session.explain(f"SELECT id FROM {t} WHERE id % 1000 = 7 LIMIT 5", analyze=True)
    assert "until 5 rows are there" in text and "tasks read nothing, since the limit was full" in text
    stage = json.loads(session.explain(f"SELECT id FROM {t} WHERE id % 1000 = 7 LIMIT 5", analyze=True, json=True))["stages"][0]
    assert stage["enough_rows"] == 5 and stage["measured"]["not_needed"] >= FILES - most(5)
