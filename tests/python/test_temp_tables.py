# SPDX-License-Identifier: Apache-2.0
"""CREATE TEMP TABLE … AS: large ones stay on the workers, and behave as DuckDB's do."""
import json
import os
import signal
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import brant

N = 100_000


@pytest.fixture(scope="module")
def t(tmp_path_factory):
    at = tmp_path_factory.mktemp("data") / "t.parquet"
    pq.write_table(pa.table({"id": list(range(N)), "k": [i % 10 for i in range(N)]}), at, row_group_size=10_000)
    return f"'{at}'"


@pytest.fixture(params=["always", "never"])
def session(request):
    """never: DuckDB's own temporary tables; all that is asked of ours is asked of them."""
    with brant.Session(workers=2, threads=1, memory=1 << 30, distribute=request.param) as s:
        s.seen, s.kept = [], request.param == "always"
        s.subscribe(lambda text: s.seen.append(json.loads(text)))
        yield s


def rows(s, sql):
    return [tuple(r.values()) for r in s.execute(sql).arrow().to_pylist()]


def on_workers(s, name):
    """Is it kept there? Then it is a view over a dataset."""
    got = rows(s, f"SELECT sql FROM duckdb_views() WHERE temporary AND NOT internal AND view_name = '{name}'")
    return bool(got) and "dataset(" in got[0][0]


def test_life(session, t):
    assert session.execute(f"CREATE TEMP TABLE x AS SELECT * FROM {t} WHERE k < 5").arrow().num_columns <= 1
    assert on_workers(session, "x") == session.kept
    assert rows(session, "SELECT count(*), sum(id) FROM x") == [(N // 2, sum(i for i in range(N) if i % 10 < 5))]
    assert rows(session, "SELECT count(*) FROM x a JOIN X b USING (id) WHERE a.k = 3") == [(N // 10,)]
    assert rows(session, "SELECT count(*) FROM temp.x") == [(N // 2,)]
    with pytest.raises(brant.Error, match="(?i)already"):
        session.execute("CREATE TEMP TABLE x AS SELECT 1 AS a")
    session.execute("CREATE TEMPORARY TABLE IF NOT EXISTS x AS SELECT 1 AS a")
    assert rows(session, "SELECT count(*) FROM x") == [(N // 2,)]
    session.execute("CREATE OR REPLACE TEMP TABLE x AS SELECT k, count(*) AS n FROM x GROUP BY k")  # from itself
    assert sorted(rows(session, "SELECT * FROM x")) == [(k, N // 10) for k in range(5)]
    with pytest.raises(brant.Error):
        session.execute("CREATE OR REPLACE TEMP TABLE x AS SELECT CAST('a' || k AS INT) AS a FROM x")
    assert rows(session, "SELECT sum(n) FROM x") == [(N // 2,)]  # it stays as it was
    session.execute("DROP TABLE x")
    for gone in ("SELECT * FROM x", "DROP TABLE x"):
        with pytest.raises(brant.Error, match="(?i)does not exist"):
            session.execute(gone)
    session.execute("DROP TABLE IF EXISTS x")


def test_what_tables_can(session, t):
    session.execute(f'CREATE TEMP TABLE "my Table" AS FROM {t}')
    assert on_workers(session, "my Table") == session.kept
    session.execute('DELETE FROM "My table" WHERE k > 0')
    assert not on_workers(session, "my Table")
    session.execute('INSERT INTO "my Table" VALUES (-1, 0)')
    session.execute('UPDATE "my Table" SET k = 7 WHERE id = -1')
    session.execute('ALTER TABLE "my Table" ADD COLUMN s VARCHAR')
    assert rows(session, 'SELECT count(*), min(id), max(k), count(s) FROM "my Table"') == [(N // 10 + 1, -1, 7, 0)]
    session.execute(f"CREATE OR REPLACE TEMP TABLE \"my Table\" AS SELECT id FROM {t} WHERE id < 10")
    assert on_workers(session, "my Table") == session.kept
    assert rows(session, 'SELECT count(*) FROM "my Table"') == [(10,)]
    session.execute('CREATE OR REPLACE TEMP TABLE "my Table" (a INT)')
    assert rows(session, 'SELECT count(*) FROM "my Table"') == [(0,)]
    session.execute('DROP TABLE "my Table"')


def test_other_things_of_that_name(session, t, tmp_path):
    session.execute("CREATE VIEW v AS SELECT 'main' AS a")
    session.execute(f"CREATE TEMP TABLE v AS SELECT k::VARCHAR AS a FROM {t} WHERE k = 1")
    assert rows(session, "SELECT DISTINCT a FROM v") == [("1",)]
    assert rows(session, "SELECT a, current_database() IS NOT NULL FROM v WHERE a = 'main'") == []
    assert rows(session, "SELECT a FROM memory.main.v") == [("main",)]
    session.execute("CREATE OR REPLACE VIEW v AS SELECT 'other' AS a")
    assert rows(session, "SELECT DISTINCT a FROM v") == [("1",)]
    with pytest.raises(brant.Error, match="(?i)table|exists|type"):
        session.execute("DROP VIEW temp.v")
    with pytest.raises(brant.Error, match="(?i)already|exists"):
        session.execute("CREATE TEMP VIEW v AS SELECT 1 AS a")
    session.execute("DROP TABLE temp.v")
    assert rows(session, "SELECT a FROM v") == [("other",)]
    session.execute("CREATE TEMP VIEW w AS SELECT 1 AS a")
    with pytest.raises(brant.Error, match="(?i)already|exists"):
        session.execute(f"CREATE TEMP TABLE w AS SELECT * FROM {t}")
    with pytest.raises(brant.Error, match="(?i)view"):
        session.execute(f"CREATE OR REPLACE TEMP TABLE w AS SELECT * FROM {t}")
    assert rows(session, "SELECT a FROM w") == [(1,)]
    session.execute(f"CREATE TEMP TABLE y AS SELECT * FROM {t}")
    session.execute(f"COPY (SELECT * FROM y WHERE k = 2) TO '{tmp_path}/y.parquet'").arrow()
    session.execute(f"COPY y TO '{tmp_path}/all.parquet'").arrow()
    assert (pq.read_table(tmp_path / "y.parquet").num_rows, pq.read_table(tmp_path / "all.parquet").num_rows) == (N // 10, N)
    session.execute("CREATE TABLE main.here AS SELECT * FROM y WHERE k = 3")
    assert rows(session, "SELECT count(*) FROM here") == [(N // 10,)]
    assert on_workers(session, "y") == session.kept
    assert rows(session, "SELECT column_name FROM (DESCRIBE y)") == [("id",), ("k",)]
    assert "y" in {r[0] for r in rows(session, "SELECT name FROM (SHOW ALL TABLES)")}


def test_small_ones_stay_here(t):
    with brant.Session(workers=2, threads=1, memory=1 << 30, distribute="auto", settings={"small_bytes": "1MiB"}) as s:
        s.execute("CREATE TEMP TABLE few AS SELECT range AS a FROM range(10)")
        assert not on_workers(s, "few") and rows(s, "SELECT sum(a) FROM few") == [(45,)]
        s.execute("CREATE TEMP TABLE nothing AS SELECT 1 AS a WITH NO DATA")
        assert rows(s, "SELECT count(*) FROM nothing") == [(0,)]


def test_workers_are_lost(t):
    with brant.Session(workers=2, threads=1, memory=1 << 30, distribute="always") as s:
        seen = []
        s.subscribe(lambda text: seen.append(json.loads(text)))
        s.execute(f"CREATE TEMP TABLE x AS SELECT * FROM {t} WHERE k < 5")
        os.kill([e["pid"] for e in seen if e["type"] == "worker_joined"][0], signal.SIGKILL)
        assert rows(s, "SELECT count(*), sum(id) FROM x") == [(N // 2, sum(i for i in range(N) if i % 10 < 5))]


def test_interrupted(t):
    """A statement that would go on for minutes ends at once, and the name is free."""
    with brant.Session(workers=2, threads=1, memory=1 << 30, distribute="always") as s:
        started = threading.Event()
        s.subscribe(lambda text: started.set() if json.loads(text)["type"] == "task_started" else None)
        stop = threading.Thread(target=lambda: started.wait(60) and s._native.interrupt())
        stop.start()
        begun = time.monotonic()
        with pytest.raises(brant.Error) as e:
            s.execute(f"CREATE TEMP TABLE x AS SELECT count(*) AS n FROM {t} a, {t} b WHERE hash(a.id, b.id) % 1000 = 1 AND a.k <> b.k GROUP BY a.id // 100")
        stop.join()
        assert e.value.code == "CANCELLED" and time.monotonic() - begun < 60
        s.execute("CREATE TEMP TABLE x AS SELECT 1 AS a")
        assert rows(s, "SELECT a FROM x") == [(1,)]
