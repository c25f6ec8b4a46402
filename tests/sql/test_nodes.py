# SPDX-License-Identifier: Apache-2.0
"""brant's own nodes in SQL, on three workers: how many partitions, which rows are together, and the same rows as without them."""
import json

import duckdb
import pytest

import brantlib

FILES = 4


@pytest.fixture(scope="module")
def t(tmp_path_factory):
    d = tmp_path_factory.mktemp("nodes")
    for i in range(FILES):
        duckdb.sql(f"COPY (SELECT i AS id, i % 37 AS k, 's' || (i % 14) AS s FROM range({i * 5000}, {(i + 1) * 5000}) r(i)) TO '{d}/{i}.parquet'")
    return f"'{d}/*.parquet'"


@pytest.fixture(scope="module")
def session():
    with brantlib.Session(workers=3, threads=1, distribute="always", settings={"partitions": 3}) as s:
        yield s


def rows(session, sql):
    table, stats = session.run(sql)
    assert stats.distributed
    return [tuple(r.values()) for r in table.to_pylist()]


def plan(session, sql, analyze=False):
    return json.loads(session.explain(sql, analyze=analyze, json=True))["stages"]


def tasks(session, sql):
    """Tasks of the last stage."""
    return plan(session, sql)[-1]["tasks"]


def batches(session, sql):
    q = session.submit(sql)
    try:
        return [b for b in q.reader()]
    finally:
        q.free()


def parts(session, sql):
    """The rows of each task of the last stage, whose only column tells the task: an id."""
    found = {}
    for (row,) in rows(session, sql):
        found.setdefault(row >> 36, []).append(row & (1 << 36) - 1)
    return found


# ---- repartition

@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_repartition_by_key(session, t, n):
    sql = f"SELECT *, monotonically_increasing_id() >> 36 AS task FROM repartition((SELECT * FROM {t}), {n}, k)"
    assert tasks(session, sql) == n
    got = rows(session, sql)
    assert sorted(r[:3] for r in got) == duckdb.sql(f"SELECT * FROM {t} ORDER BY ALL").fetchall()
    where = {}
    for _, k, _, task in got:
        where.setdefault(k, set()).add(task)
    assert all(len(s) == 1 for s in where.values())
    assert len({task for s in where.values() for task in s}) > min(n, 10) // 2


def test_round_robin_is_even(session, t):
    got = parts(session, f"SELECT monotonically_increasing_id() FROM repartition((SELECT * FROM {t}), 8)")
    assert {k: len(v) for k, v in got.items()} == {i: 2500 for i in range(8)}
    stages = plan(session, f"SELECT * FROM repartition((SELECT * FROM {t}), 8)")
    assert stages[0]["indeterminate"] and stages[0]["partitions"] == 8
    stages = plan(session, f"SELECT * FROM repartition((SELECT * FROM {t} ORDER BY id), 8)")
    assert not stages[-2]["indeterminate"] and stages[-2]["ordered_output"]  # fed in order


def test_key_expressions_nested_calls_and_names(session, t):
    sql = f"SELECT count(*), sum(id) FROM repartition((SELECT * FROM repartition((FROM {t}), 5, lower(s), id // 100)), 2, [k, id % 3], s || ',)')"
    assert [s["partitions"] for s in plan(session, sql)][:2] == [5, 2]
    assert rows(session, sql) == [(20000, 199990000)]
    session.run(f"CREATE OR REPLACE VIEW v_nodes AS SELECT * FROM repartition((SELECT * FROM {t}), 6, k)")
    assert tasks(session, "SELECT * FROM v_nodes") == 6
    assert rows(session, "SELECT count(*) FROM repartition(v_nodes, 4) AS r WHERE r.k = 3") == [(541,)]
    text = "SELECT 'repartition((SELECT 1), 0)' AS c FROM repartition((SELECT 1), 2)  -- repartition((SELECT 1), 0)"
    assert rows(session, text) == [("repartition((SELECT 1), 0)",)]


@pytest.mark.parametrize("call", ["repartition((SELECT 1 AS a))", "repartition((SELECT 1 AS a), 0)", "repartition((SELECT 1 AS a), 65537)",
                                  "repartition((SELECT 1 AS a), a)", "repartition((SELECT 1 AS a), -1)", "into_partitions((SELECT 1 AS a), 2, a)",
                                  "into_batches((SELECT 1 AS a), 0)", "into_batches((SELECT 1), 5000000000)", "repartition((SELECT 1 AS a), 2, )",
                                  "repartition((SELECT 1 AS a), 2, random())", "repartition((SELECT 1 AS a), 2, nothing)"])
def test_wrong_arguments(session, call):
    with pytest.raises(brantlib.BrantError) as e:
        session.run(f"SELECT * FROM {call}")
    assert e.value.code == "INVALID" and ("repartition" in str(e.value) or "into_" in str(e.value) or "nothing" in str(e.value))


def test_filters_limits_and_projections_around(session, t):
    inner = f"SELECT id * 2 AS d, k, s FROM {t} WHERE id % 3 = 0"
    for node in (f"repartition(({inner}), 5, k)", f"repartition(({inner}), 5)", f"into_partitions(({inner}), 5)", f"into_batches(({inner}), 77)"):
        got = rows(session, f"SELECT s, d + 1 AS e FROM {node} WHERE k > 3 AND d < 30000")
        assert sorted(got) == duckdb.sql(f"SELECT s, d + 1 FROM ({inner}) WHERE k > 3 AND d < 30000 ORDER BY ALL").fetchall()
        assert len(rows(session, f"SELECT * FROM {node} LIMIT 13")) == 13
        assert rows(session, f"SELECT d FROM {node} ORDER BY d DESC LIMIT 3 OFFSET 1") == [(39990,), (39984,), (39978,)]
        assert rows(session, f"SELECT count(*) FROM (SELECT * FROM {node} LIMIT 0)") == [(0,)]
        limited = node.replace("% 3 = 0)", "% 3 = 0 LIMIT 100)")
        assert rows(session, f"SELECT count(*) FROM {limited}") == [(100,)]
    pushed = plan(session, f"SELECT * FROM repartition(({inner}), 5, k) WHERE k > 3")
    assert "> 3" in pushed[0]["sql"] and "> 3" not in pushed[1]["sql"]


def test_what_the_optimizer_may_not_move_it_across(session, t):
    """Below a join, an aggregate, a window or a union the rows that come out would be anywhere."""
    for sub in (f"SELECT a.k, a.id FROM {t} a JOIN {t} b ON a.id = b.id", f"SELECT k, sum(id) FROM {t} GROUP BY k",
                f"SELECT k, row_number() OVER (PARTITION BY k ORDER BY id) FROM {t}", f"SELECT DISTINCT k, s FROM {t}",
                f"SELECT k, id FROM {t} UNION ALL SELECT id, k FROM {t}", f"SELECT k, unnest([1, 2]) FROM {t}"):
        for call in (f"repartition(({sub}), 6, k)", f"repartition(({sub}), 6)", f"into_partitions(({sub}), 6)"):
            assert tasks(session, f"SELECT * FROM {call}") == 6, call
            assert sorted(rows(session, f"SELECT * FROM {call}")) == sorted(duckdb.sql(sub).fetchall())


def test_a_cte_read_twice_is_placed_once(session, t):
    sql = f"WITH c AS (SELECT * FROM repartition((SELECT * FROM {t}), 5, k)) SELECT count(*) FROM c a JOIN c b ON a.id = b.id"
    assert sum(s["why"] is not None and "repartition" in s["why"] for s in plan(session, sql)) == 1
    assert rows(session, sql) == [(20000,)]


def test_concat(session, t):
    sql = f"SELECT * FROM repartition((SELECT * FROM {t}), 3, k) UNION ALL SELECT * FROM repartition((SELECT * FROM {t}), 4)"
    assert tasks(session, sql) == 7
    assert sorted(rows(session, sql)) == duckdb.sql(f"SELECT * FROM {t} UNION ALL SELECT * FROM {t} ORDER BY ALL").fetchall()


def test_joins_of_repartitioned_sides_move_nothing(session, t):
    a, b = f"repartition((SELECT * FROM {t}), 5, k)", f"repartition((SELECT k, max(id) AS m FROM {t} GROUP BY k), %d, k)"
    same = f"SELECT * FROM {a} a JOIN {b % 5} b USING (k)"
    stages = plan(session, same)
    assert [i["kind"] for i in stages[-1]["inputs"]] == ["HASH", "HASH"] and "kept clustering" in str(stages[-1]["why"])
    assert stages[-1]["tasks"] == 5
    want = duckdb.sql(f"SELECT * FROM {t} a JOIN (SELECT k, max(id) AS m FROM {t} GROUP BY k) b USING (k) ORDER BY ALL").fetchall()
    assert sorted(rows(session, same)) == want
    session.set("broadcast_bytes", 0)
    try:
        other = f"SELECT * FROM {a} a JOIN {b % 4} b USING (k)"  # the smaller side moves once more
        assert plan(session, other)[-1]["tasks"] == 5
        assert sorted(rows(session, other)) == want
        one = f"SELECT * FROM {a} a JOIN (SELECT k, max(id) AS m FROM {t} GROUP BY k) b USING (k)"
        assert plan(session, one)[-1]["tasks"] == 5  # the other side goes to as many
        assert sorted(rows(session, one)) == want
        swapped = f"SELECT a.id, b.id FROM repartition((FROM {t}), 4, k, id) a JOIN repartition((FROM {t}), 4, id, k) b ON a.k = b.k AND a.id = b.id"
        assert rows(session, f"SELECT count(*) FROM ({swapped})") == [(20000,)]
    finally:
        session.set("broadcast_bytes", 64 << 20)


def test_group_by_after_repartition_moves_nothing(session, t):
    sql = f"SELECT k, count(*), sum(id) FROM repartition((SELECT * FROM {t}), 5, k) GROUP BY k"
    assert len(plan(session, sql)) == 2 and tasks(session, sql) == 5
    assert sorted(rows(session, sql)) == duckdb.sql(f"SELECT k, count(*), sum(id) FROM {t} GROUP BY k ORDER BY k").fetchall()
    within = f"SELECT k, s, count(*) FROM repartition((SELECT * FROM {t}), 5, k) GROUP BY k, s"
    assert len(plan(session, within)) == 2
    not_within = f"SELECT s, count(*) FROM repartition((SELECT * FROM {t}), 5, k) GROUP BY s"
    assert len(plan(session, not_within)) == 3
    assert sorted(rows(session, not_within)) == duckdb.sql(f"SELECT s, count(*) FROM {t} GROUP BY s ORDER BY s").fetchall()


def test_types_as_keys(session, t):
    sub = (f"SELECT id, NULLIF(k, 3) AS n, id::DOUBLE AS f, s::ENUM('s0','s1','s2','s3','s4','s5','s6','s7','s8','s9','s10','s11','s12','s13') AS e, "
           f"{{'a': k, 'b': [s]}} AS st, DATE '2020-01-01' + k::INTEGER AS dt, (id % 5)::DECIMAL(9, 2) AS dec FROM {t}")
    for key in ("n", "f", "e", "st", "dt", "dec", "NULL"):
        assert rows(session, f"SELECT count(*), count(n), sum(id), min(e) FROM repartition(({sub}), 4, {key})") == [(20000, 19459, 199990000, "s0")]


# ---- into_partitions

@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 13])
def test_into_partitions_keeps_the_order(session, t, n):
    sql = f"SELECT id, monotonically_increasing_id() >> 36 AS task FROM into_partitions((SELECT * FROM {t}), {n})"
    assert tasks(session, sql) == n
    got = rows(session, sql)
    assert [r[0] for r in got] == list(range(20000))
    counts = [sum(1 for r in got if r[1] == i) for i in range(n)]
    assert sum(counts) == 20000 and max(counts) - min(counts) <= 1 if n != 3 else max(counts) < 6668
    assert [r[1] for r in got] == sorted(r[1] for r in got)


def test_into_partitions_of_sorted_rows_and_of_a_union(session, t):
    assert rows(session, f"SELECT id FROM into_partitions((SELECT * FROM {t} ORDER BY id DESC), 6)") == [(i,) for i in range(19999, -1, -1)]
    session.set("sort_one_task_rows", 0)
    try:
        assert rows(session, f"SELECT id FROM into_partitions((SELECT * FROM {t} ORDER BY id DESC), 7)") == [(i,) for i in range(19999, -1, -1)]
    finally:
        session.set("sort_one_task_rows", 1000000)
    union = f"SELECT id FROM into_partitions((SELECT id FROM {t} UNION ALL SELECT id + 20000 FROM {t}), 5)"
    assert rows(session, union) == [(i,) for i in range(40000)]


def test_into_partitions_keeps_the_order_with_several_threads(tmp_path):
    duckdb.sql(f"COPY (SELECT i AS id FROM range(600000) r(i)) TO '{tmp_path}/a.parquet' (ROW_GROUP_SIZE 20000)")
    with brantlib.Session(workers=1, threads=4, distribute="always") as s:
        for n in (1, 3, 7):
            table, _ = s.run(f"SELECT id FROM into_partitions((FROM '{tmp_path}/a.parquet'), {n})")
            assert table["id"].to_pylist() == list(range(600000))
        ids, _ = s.run(f"SELECT monotonically_increasing_id() AS m FROM '{tmp_path}/a.parquet'")
        assert len(set(ids["m"].to_pylist())) == 600000


# ---- into_batches

@pytest.mark.parametrize("n", [1, 100, 2048, 4999, 5000, 100000])
def test_into_batches(session, t, n):
    if n == 1:
        got = [b.num_rows for b in batches(session, f"SELECT * FROM into_batches((SELECT * FROM {t} WHERE id < 300), 1)")]
        assert got == [1] * 300
        return
    sizes = [b.num_rows for b in batches(session, f"SELECT * FROM into_batches((SELECT * FROM {t}), {n})")]
    a_file = [n] * (5000 // n) + ([5000 % n] if 5000 % n else [])
    assert sizes == a_file * FILES
    assert plan(session, f"SELECT * FROM into_batches((SELECT * FROM {t}), {n})")[-1]["batch_rows"] == n


def test_into_batches_before_an_exchange(session, t):
    sql = f"SELECT k, count(*) FROM into_batches((SELECT * FROM {t}), 10) GROUP BY k"
    assert sorted(rows(session, sql)) == duckdb.sql(f"SELECT k, count(*) FROM {t} GROUP BY k ORDER BY k").fetchall()


# ---- ids

def test_ids(session, t):
    got = rows(session, f"SELECT monotonically_increasing_id() FROM {t}")
    assert sorted(r[0] for r in got) == [task << 36 | i for task in range(FILES) for i in range(5000)]
    twice = rows(session, f"SELECT monotonically_increasing_id() AS a, monotonically_increasing_id() AS b FROM {t} WHERE k = 1")
    assert all(a == b for a, b in twice)
    assert plan(session, f"SELECT monotonically_increasing_id() FROM {t}")[-1]["indeterminate"]
    assert "brant_task_number" not in session.explain(f"SELECT monotonically_increasing_id() FROM {t}")


def test_ids_in_passes_are_unique(session, t):
    session.set("task_passes", 3)
    try:
        got = rows(session, f"SELECT k, monotonically_increasing_id() AS m FROM repartition((SELECT * FROM {t}), 3, k)")
        assert len({m for _, m in got}) == 20000
    finally:
        session.set("task_passes", 0)


@pytest.mark.parametrize("distribute", ["never", "auto"])
def test_in_the_callers_process(t, distribute):
    with brantlib.Session(workers=1, distribute=distribute) as s:
        table, stats = s.run(f"SELECT id, monotonically_increasing_id() AS m FROM repartition((SELECT * FROM into_partitions((FROM {t}), 3)), 5, k)")
        assert not stats.distributed and table.num_rows == 20000 and len(set(table["m"].to_pylist())) == 20000
        assert s.run(f"SELECT count(*) AS n FROM into_batches({t}, 10)")[0]["n"].to_pylist() == [20000]


def test_one_task_of_the_whole_text(session, t, tmp_path):
    """What can't be taken apart still runs: the nodes change nothing then."""
    (tmp_path / "a.csv").write_text("id\n1\n2\n3\n")
    sql = f"SELECT r.id, monotonically_increasing_id() AS m FROM repartition((SELECT * FROM read_csv('{tmp_path}/a.csv')), 4, id) r ORDER BY r.id"
    assert [r[0] for r in rows(session, sql)] == [1, 2, 3]


def test_copy(session, t, tmp_path):
    session.run(f"COPY (SELECT * FROM repartition((FROM {t}), 6, k)) TO '{tmp_path}/out/' (FORMAT parquet)")
    files = list((tmp_path / "out").glob("*.parquet"))
    assert 2 <= len(files) <= 6
    assert duckdb.sql(f"SELECT count(*), sum(id) FROM '{tmp_path}/out/*.parquet'").fetchall() == [(20000, 199990000)]
    where = duckdb.sql(f"SELECT k, count(DISTINCT filename) FROM read_parquet('{tmp_path}/out/*.parquet', filename := true) GROUP BY k").fetchall()
    assert {n for _, n in where} == {1}


# ---- what others' engines got wrong

def test_into_partitions_after_range_then_limit(session):
    for n in (1, 10, 64):
        assert rows(session, f"SELECT * FROM into_partitions((SELECT * FROM range(1000)), {n}) LIMIT 5") == [(i,) for i in range(5)]
        assert len(rows(session, f"SELECT * FROM into_partitions((SELECT * FROM range(3)), {n}) LIMIT 5")) == 3


def test_limit_then_cross_join(session, t):
    for n in (1, 7, 100):
        one = f"(SELECT * FROM repartition((FROM {t}), 5) LIMIT {n})"
        sql = f"SELECT count(*), count(DISTINCT a.id) FROM {one} a CROSS JOIN repartition((SELECT * FROM range(30) r(j)), 4) b"
        assert rows(session, sql) == [(n * 30, n)]


def test_into_batches_then_distinct(session, t):
    for n in (1, 4):
        assert rows(session, f"SELECT count(*) FROM (SELECT DISTINCT s FROM into_batches((SELECT s FROM {t} WHERE id < 1400), {n}))") == [(14,)]
    strings = "SELECT unnest(['a','b','c','d','e','f','g','h','i','j','k','l','m','a']) AS s"
    assert sorted(rows(session, f"SELECT DISTINCT s FROM into_batches(({strings}), 4)")) == [(c,) for c in "abcdefghijklm"]


def test_few_rows_into_more_partitions_then_a_string_function(session):
    sub = "SELECT unnest(['x', 'yy', NULL]) AS s"
    for call in (f"repartition(({sub}), 4)", f"repartition(({sub}), 4, s)", f"into_partitions(({sub}), 4)"):
        assert sorted(rows(session, f"SELECT upper(s), length(s) FROM {call}"), key=str) == [("X", 1), ("YY", 2), (None, None)]


def test_selective_filter_with_limit(session, t):
    sql = f"SELECT id FROM repartition((SELECT * FROM {t}), 8) WHERE id % 1999 = 7 LIMIT 10"
    got = rows(session, sql)
    assert len(got) == 10 and all(i % 1999 == 7 for (i,) in got)
    assert len(rows(session, f"SELECT id FROM {t} WHERE id = 12345 LIMIT 10")) == 1


@pytest.mark.parametrize("mode", ["staged", "eager"])
def test_modes(t, mode):
    with brantlib.Session(workers=3, threads=1, distribute="always", mode=mode) as s:
        sql = f"SELECT k, count(*) AS n FROM into_partitions((SELECT * FROM repartition((SELECT * FROM into_batches({t}, 50)), 5)), 7) GROUP BY k"
        assert sorted(rows(s, sql)) == duckdb.sql(f"SELECT k, count(*) FROM {t} GROUP BY k ORDER BY k").fetchall()


# ---- broadcast


@pytest.mark.parametrize("kind, side", [("JOIN", 2), ("JOIN", 1), ("LEFT JOIN", 2), ("SEMI JOIN", 2), ("ANTI JOIN", 2), ("RIGHT JOIN", 1),
                                        ("LEFT JOIN", 1), ("FULL JOIN", 2), ("SEMI JOIN", 1), ("RIGHT JOIN", 2)])
def test_broadcast(session, t, kind, side):
    """A side goes to all tasks of the other because the query asks for it, unless rows would come twice; the rows are the same."""
    allowed = kind == "JOIN" or side == (1 if kind == "RIGHT JOIN" else 2) and kind != "FULL JOIN"
    sides = [f"(SELECT id, k FROM {t} WHERE id % 3 <> 0)", f"(SELECT id, s FROM {t} WHERE id % 5 <> 0)"]
    plain = f"SELECT count(*), count(DISTINCT id), sum(hash(COLUMNS(*)::VARCHAR)) FROM (SELECT * FROM {sides[0]} a {kind} {sides[1]} b USING (id))"
    sides[side - 1] = f"broadcast({sides[side - 1]})"
    asked = f"SELECT count(*), count(DISTINCT id), sum(hash(COLUMNS(*)::VARCHAR)) FROM (SELECT * FROM {sides[0]} a {kind} {sides[1]} b USING (id))"
    session.set("broadcast_bytes", "0")
    try:
        assert rows(session, plain) == rows(session, asked)
        why = [s["why"] or "" for s in plan(session, asked)]
    finally:
        session.set("broadcast_bytes", str(64 << 20))
    assert any("asked for" in w for w in why) == allowed, why


def test_broadcast_of_tables_views_and_wrong_ones(session, t):
    session.run(f"CREATE OR REPLACE VIEW few AS SELECT DISTINCT k FROM {t} WHERE k < 5")
    assert rows(session, f"SELECT count(*) FROM {t} a JOIN broadcast(few) USING (k) WHERE a.id < 370") == [(50,)]
    assert rows(session, "SELECT count(*) FROM broadcast((SELECT * FROM few)) AS b WHERE b.k > 1") == [(3,)]
    for bad in ("broadcast(few, 1)", "broadcast()"):
        with pytest.raises(brantlib.BrantError, match="broadcast"):
            session.run(f"SELECT * FROM {bad}")
