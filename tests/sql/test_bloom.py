# SPDX-License-Identifier: Apache-2.0
"""Bloom filters of a join's keys: rows that have no partner are dropped where they are read (counted), answers are right for keys of all
types, in both modes, at several numbers of partitions, at the edges, after a lost worker; and none is made where it would not pay.
bloom_keys = 0 makes one wherever it is right; filter_bytes = 1 leaves the keys themselves out."""
import json
import os
import signal

import pytest

import brantlib
import compare
import queries

SETTINGS = {"broadcast_bytes": 0, "sort_one_task_rows": 0, "split_bytes": 20000, "partitions": 3, "filter_bytes": 1, "bloom_keys": 0,
            "bloom_bytes": "16MiB", "sorted_scans": "false"}  # the files are in the order of k: nothing would move
FILES, ROWS = 4, 3000  # of facts

# Per column an expression over i: keys of part are spread over all of facts, so that their range drops nothing.
COLUMNS = {
    "k": "i",
    "small": "(i % 250 - 125)::TINYINT",
    "wide": "CASE WHEN i % 97 = 0 THEN NULL WHEN i = 5 THEN -9223372036854775808 WHEN i = 11999 THEN 9223372036854775807 "
            "ELSE (i - 6000)::BIGINT * 1000000007 END",
    "unsigned": "(i * 300000)::UINTEGER",
    "long": "(i * 300000)::UBIGINT",
    "huge": "(i - 6000)::HUGEINT * 100000000000000000000",
    "exact": "(i - 6000)::DECIMAL(9,2) / 4",
    "wider": "((i - 6000)::DECIMAL(9,2) / 4)::DECIMAL(28,3)",
    "real": "CASE WHEN i % 3000 = 0 THEN 'nan'::DOUBLE WHEN i % 3000 = 1 THEN -0.0 WHEN i % 3000 = 2 THEN 'infinity'::DOUBLE "
            "WHEN i % 3000 = 3 THEN 0.0 ELSE i - 6000 END",
    "name": "CASE WHEN i % 11 = 0 THEN 'N' ELSE 'n' END || lpad(i::VARCHAR, 6, '0')",
    "day": "CASE WHEN i = 0 THEN '-infinity'::DATE WHEN i = 11999 THEN 'infinity'::DATE ELSE DATE '1965-01-01' + i::INTEGER END",
    "at": "CASE WHEN i % 50 = 0 THEN NULL ELSE (DATE '1965-01-01' + i::INTEGER)::TIMESTAMP END",
    "zoned": "TIMESTAMPTZ '1969-12-31 23:00:00.25+02' + INTERVAL (i) MINUTE",
    "flag": "i % 2 = 0",
    "kind": "(['a', 'b', 'c'])[i % 3 + 1]::ENUM('c', 'a', 'b')",
    "pair": "{'a': i, 'b': [i::VARCHAR, NULL]}",
}
FEW_VALUES = ("small", "flag", "kind", "real")  # whose joins give many rows: of fewer rows


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bloom")
    duck = queries.Duck()
    columns = ", ".join(f"{e} AS {c}" for c, e in COLUMNS.items())
    for f in range(FILES):
        duck.execute(f"COPY (SELECT {columns}, i % 7 AS v FROM range({f * ROWS}, {f * ROWS + ROWS}) t(i)) TO '{folder}/facts-{f}.parquet'")
    nulls = ", ".join(["NULL"] * len(COLUMNS))
    duck.execute(f"COPY (SELECT {columns}, i * 3 AS w FROM range({FILES * ROWS}) t(i) WHERE i % 9 = 0 OR i = 5 OR i = 11999 "
                 f"UNION ALL SELECT {nulls}, 1) TO '{folder}/part.parquet'")
    for name, query in {"empty": "FROM part WHERE w < 0", "nulls": "SELECT NULL::BIGINT AS k, 5 AS w FROM range(900)",
                        "one": "FROM part WHERE k = 9", "same": "SELECT 18::BIGINT AS k, range AS w FROM range(700)",
                        "most": "SELECT k, v AS w FROM facts WHERE k % 10 <> 3"}.items():
        query = query.replace("part", f"'{folder}/part.parquet'").replace("facts", f"'{folder}/facts-*.parquet'")
        duck.execute(f"COPY ({query}) TO '{folder}/{name}.parquet'")
    return folder


def views(data):
    return [f"CREATE VIEW facts AS SELECT * FROM '{data}/facts-*.parquet'"] + [
        f"CREATE VIEW {t} AS SELECT * FROM '{data}/{t}.parquet'" for t in ("part", "empty", "nulls", "one", "same", "most")]


@pytest.fixture(scope="module")
def duck(data):
    d = queries.Duck()
    for v in views(data):
        d.execute(v)
    return d


def open_session(data, mode="staged", **settings):
    s = brantlib.Session(workers=2, threads=1, distribute="always", mode=mode, settings={**SETTINGS, **settings})
    for v in views(data):
        s.run(v)
    return s


def check(session, duck, sql):
    table, _ = session.run(sql)
    assert compare.difference(compare.rows_of(table), compare.rows_of(duck.con.execute(sql).to_arrow_table()), ordered=False) is None, sql


def stages(session, sql):
    """The stage that makes a filter, the one that reads it; None: there is none. As measured."""
    found = json.loads(session.explain(sql, True, True))["stages"]
    maker = [s for s in found if any(i["kind"] == "KEYS" for i in s["inputs"])]
    reader = [s for s in found if any(i["kind"] == "FILTER" for i in s["inputs"])]
    assert len(maker) <= 1 and len(reader) == 1, sql
    return (maker[0] if maker else None), reader[0]


def join(column, other="part", how="JOIN"):
    kept = ", s.w" if how in ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN") else ""
    return f"SELECT f.k, f.v{kept} FROM facts f {how} {other} s ON f.{column} = s.{column}"


def test_rows_are_dropped_where_they_are_read(data, duck):
    partners = duck.con.execute("SELECT count(*) FROM facts SEMI JOIN part USING (k)").fetchone()[0]
    for mode in ("staged", "eager"):
        with open_session(data, mode) as s:
            maker, reader = stages(s, join("k"))
            assert maker["measured"]["tasks"] == 1 and maker["measured"]["rows_out"] == 1
            assert "keys_maybe(" in reader["task_sql"] and "SEMI JOIN" not in reader["task_sql"]
            assert partners <= reader["measured"]["rows_out"] <= partners + FILES * ROWS * 0.02
            check(s, duck, join("k"))
    with open_session(data, bloom_bytes=0) as s:  # without: everything moves
        maker, reader = stages(s, join("k"))
        assert maker is None and reader["measured"]["rows_out"] == FILES * ROWS
    with open_session(data, adaptive="false") as s:
        assert stages(s, join("k"))[0] is None


def test_instead_of_many_keys(data, duck):
    """Keys that would be read by each task are not, where a filter of them is."""
    with open_session(data, filter_bytes="32MiB") as s:
        maker, reader = stages(s, join("k"))
        assert maker["measured"]["tasks"] == 1 and "SEMI JOIN" not in reader["task_sql"]
    with open_session(data, filter_bytes="32MiB", bloom_keys=1500) as s:  # the keys are estimated to be as many, and are fewer
        maker, reader = stages(s, join("k").replace("part s", "(FROM part WHERE k <> w) s"))
        assert maker is None or maker["measured"]["tasks"] == 0
        assert "keys_maybe(" not in reader["task_sql"] and "SEMI JOIN" in reader["task_sql"]


def test_none_where_it_does_not_pay(data, duck):
    with open_session(data, bloom_keys=1) as s:
        ninth = "(SELECT k, v AS w FROM facts WHERE k * 7 % 9 = 5)"
        assert stages(s, join("k", ninth))[0]["measured"]["tasks"] == 1
        check(s, duck, join("k", ninth))
        for sql, why in ((join("k", "most"), "it would drop too few rows"), (join("k"), "it would drop too few rows"),  # all rows of a table
                         (join("k", ninth.replace("= 5", "< 7")), "it would drop too few rows"),
                         (join("k", "(FROM part WHERE hash(k) = 5)"), "no key")):
            maker, reader = stages(s, sql)
            assert maker["measured"]["tasks"] == 0 and why in maker["measured"]["adapted"], maker["measured"]
            assert reader["measured"]["tasks"] == 0 or "keys_maybe(" not in reader["task_sql"]
            check(s, duck, sql)
        many = f"SELECT f.k FROM facts f JOIN {ninth.replace('k, v', 'small AS k, v')} s ON f.k = s.k"  # all of a short range
        assert stages(s, many)[0]["measured"]["tasks"] == 0
        check(s, duck, many)
    with open_session(data, bloom_bytes=64) as s:
        maker, reader = stages(s, join("k"))
        assert maker["measured"]["tasks"] == 0 and "larger than bloom_bytes" in maker["measured"]["adapted"]
        check(s, duck, join("k"))


@pytest.mark.parametrize("mode", ["staged", "eager"])
def test_keys_of_all_types(data, duck, mode):
    with open_session(data, mode) as s:
        for column in COLUMNS:
            how = ("JOIN", "SEMI JOIN", "ANTI JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN") if mode == "staged" else ("JOIN", "ANTI JOIN")
            for kind in how:
                sql = join(column, how=kind)
                if column in FEW_VALUES:
                    sql = sql.replace("facts f", "(FROM facts WHERE k % 50 = 0 OR k % 3000 < 4) f").replace(
                        "part s", "(FROM part WHERE k % 40 = 0 OR k % 3000 < 4 OR k IS NULL) s")
                check(s, duck, sql)


def test_types_that_compare_equal(data, duck):
    pairs = [("k", "small"), ("small", "wide"), ("k", "unsigned"), ("k", "long"), ("unsigned", "long"), ("k", "huge"), ("k", "exact"),
             ("exact", "wider"), ("k", "real"), ("exact", "real"), ("day", "at"), ("at", "zoned"), ("name", "kind"), ("long", "huge")]
    with open_session(data) as s:
        for a, b in pairs:
            few = "k % 20 = 0 OR k % 3000 < 4" if {a, b} & set(FEW_VALUES) else "true"
            for x, y in ((a, b), (b, a)):
                sql = f"SELECT f.k, s.w FROM (FROM facts WHERE {few}) f JOIN (FROM part WHERE {few} OR k IS NULL) s ON f.{x} = s.{y}"
                check(s, duck, sql)
                check(s, duck, sql.replace("JOIN", "SEMI JOIN").replace(", s.w", ""))
        check(s, duck, "SELECT f.k, s.w FROM facts f JOIN part s ON f.name COLLATE NOCASE = s.name COLLATE NOCASE")
        check(s, duck, "SELECT f.k, s.w FROM facts f JOIN part s ON f.k = s.k AND f.exact = s.wider AND f.name = s.name")
        check(s, duck, "SELECT f.k, s.w FROM facts f JOIN part s ON f.k = s.k AND f.v + 1 = s.w % 9")
        check(s, duck, "SELECT f.k, s.w FROM facts f JOIN part s ON f.wide IS NOT DISTINCT FROM s.wide AND f.k = s.k")


@pytest.mark.parametrize("partitions", [1, 2, 7, 64])
def test_edges(data, duck, partitions):
    for mode in ("staged", "eager"):
        with open_session(data, mode, partitions=partitions) as s:
            for other in ("empty", "nulls", "one", "same", "part"):
                for how in ("JOIN", "LEFT JOIN", "RIGHT JOIN") if mode == "staged" else ("JOIN",):
                    check(s, duck, join("k", other, how))
            check(s, duck, "SELECT f.k FROM (FROM facts WHERE v IS NULL) f JOIN part s ON f.k = s.k")
            check(s, duck, "SELECT count(*), sum(u.v + s.w) FROM (FROM facts UNION ALL FROM facts WHERE k % 3 = 0) u JOIN part s ON u.k = s.k")
            check(s, duck, "SELECT f.k, count(*), sum(t.w) FROM facts f JOIN part s ON f.k = s.k JOIN part t ON f.exact = t.wider GROUP BY f.k")


def test_texts_that_look_like_marks(data, duck):
    """The filter's text is found by comments, which a literal may hold too."""
    mark = "/* filter 0: */ x /* end of filter */ /* range of filter 0 */ /* filter 1: */"
    sql = (f"SELECT f.k, f.v || '{mark}' AS t, s.w FROM (SELECT *, '{mark}' || v AS m FROM facts WHERE name <> '{mark}') f JOIN part s "
           f"ON f.k = s.k WHERE f.m <> '/* end of filter */'")
    for settings in ({}, {"filter_bytes": "32MiB", "bloom_bytes": 0}, {"bloom_bytes": 0}, {"bloom_keys": 200000}):
        with open_session(data, **settings) as s:
            check(s, duck, sql)


@pytest.mark.parametrize("mode", ["staged", "eager"])
def test_worker_is_killed(data, duck, mode):
    """With the filter made, and with the first rows that it let through."""
    sql = join("k")
    want = compare.rows_of(duck.con.execute(sql).to_arrow_table())
    with open_session(data, mode) as s:
        plan = json.loads(s.explain(sql, False, True))["stages"]
    maker = next(p["id"] for p in plan if any(i["kind"] == "KEYS" for i in p["inputs"]))
    reader = next(p["id"] for p in plan if any(i["kind"] == "BLOOM" for i in p["inputs"]))
    for at in (maker, reader):
        pids, killed = {}, []

        def take(e):
            if e["type"] == "worker_joined":
                pids[e["worker"]] = e["pid"]
            elif e["type"] == "task_done" and e["stage"] == at and not killed:
                killed.append(pids[e["worker"]])
                os.kill(killed[0], signal.SIGKILL)

        with brantlib.Session(workers=2, threads=1, distribute="always", mode=mode, settings=SETTINGS) as s:
            s.subscribe(take)
            for v in views(data):
                s.run(v)
            killed.append(0)  # not while the workers start
            s.run("SELECT count(*) FROM part")
            killed.clear()
            table, stats = s.run(sql)
            assert killed and stats.workers_lost == 1
            assert compare.difference(compare.rows_of(table), want, ordered=False) is None


def test_chance_on_the_keys_side(data, duck):
    """Keys that may come out otherwise when they are made again: whatever comes out, each row has its partner."""
    sql = ("SELECT count(*) = count(s.k), count(*) > 0 FROM facts f JOIN (SELECT k FROM part WHERE random() < 0.5) s ON f.k = s.k")
    with open_session(data) as s:
        assert compare.rows_of(s.run(sql)[0]) == [(True, True)]


def test_settings(data):
    with open_session(data) as s:
        for value in ("257MiB", "-1", "x"):
            with pytest.raises(brantlib.BrantError) as e:
                s.set("bloom_bytes", value)
            assert "bloom_bytes" in e.value.message
        s.set("bloom_bytes", "256MiB")
