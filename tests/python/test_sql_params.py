# SPDX-License-Identifier: Apache-2.0
"""brant.sql(…, params=…) against duckdb.execute with the same values: types, names and rows."""
import datetime
import decimal

import brant
import duckdb
import pyarrow as pa
import pytest

VALUES = [5, -5, 2**40, -2**63, 1.5, -0.0, float("nan"), True, None, "x", "it's; $1 ? --", "", "a\0b\0", b"a\0\xff", datetime.date(2024, 1, 2),
          datetime.datetime(2024, 1, 2, 3, 4, 5, 678), datetime.timedelta(days=1, microseconds=5), datetime.time(1, 2, 3),
          decimal.Decimal("12.340"), [1, 2], ["a", None], {"a": 1, "b": [True]}]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values(session, value):
    sql = "SELECT ?, ? IS NULL AS n, [$1] AS l"
    got = brant.sql(sql, params=[value, value], session=session).to_arrow()
    want = duckdb.execute(sql, [value, value]).to_arrow_table()
    assert got.column_names == want.column_names
    if value is not None and not isinstance(value, datetime.timedelta):
        assert got.schema.types[0] == want.schema.types[0]
    assert str(got.to_pylist()) == str(want.to_pylist())


def test_names_and_frames(session):
    frame = brant.from_pydict({"a": list(range(100))}, session=session)
    got = brant.sql("SELECT count(*) AS n, $who AS who, a % $m AS r FROM frame WHERE a < $most GROUP BY ALL ORDER BY ALL", session=session,
                    params={"most": 10, "who": "me", "m": 3})
    assert got.columns == ["n", "who", "r"]
    assert got.to_pylist() == [{"n": n, "who": "me", "r": r} for n, r in ((3, 1), (3, 2), (4, 0))]
    assert got.where(brant.col("n") > 3).count_rows() == 1  # lazy, as any frame


def test_statements(session):
    brant.sql("CREATE OR REPLACE TABLE params_t (a INT, b VARCHAR)", session=session)
    brant.sql("INSERT INTO params_t VALUES (?, ?), ($1 + 1, NULL)", params=(1, "x"), session=session)
    script = "CREATE VIEW IF NOT EXISTS params_v AS FROM params_t; SELECT b FROM params_v WHERE a = $a"
    assert brant.sql(script, params={"a": 1}, session=session).to_pylist() == [{"b": "x"}]
    assert session.execute("SELECT $1 AS a", [7]).arrow() == pa.table({"a": pa.array([7], pa.int32())})
    brant.sql("DROP VIEW params_v; DROP TABLE params_t", session=session)


@pytest.mark.parametrize("params, message", [([], "no value for the parameter"), ([1, 2], "which the statement does not have"),
                                             ({"a": 1}, "which the statement does not have"),
                                             ("x", "a list or a dict"), ([object()], "can't be written as a constant")])
def test_errors(session, params, message):
    with pytest.raises(brant.Error, match=message):
        brant.sql("SELECT $1", params=params, session=session)
