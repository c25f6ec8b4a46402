# SPDX-License-Identifier: Apache-2.0
"""Names and values from Python as SQL: hostile ones come back as they were, or are refused with a word why."""

import datetime as dt
import decimal
import enum
import math
import uuid

import brant
import pyarrow as pa
import pytest
from brant import col, lit
from brant import functions as f

D = decimal.Decimal
UTC = dt.timezone.utc
EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))

TEXTS = [
    "",
    "'",
    "''",
    "a'b",
    '"',
    "\\",
    "\\n",
    "new\nline",
    "tab\t",
    "--",
    "; drop table t; --",
    "/* */",
    "%s",
    "{x}",
    "$1",
    "?",
    "ünïcödé",
    "日本",
    "🦆",
    "\0",
    "a\0b",
    "\u200b",
    "e\u0301",
    "x" * 5000,
    "' || chr(0) || '",
    "NULL",
    "\r\n",
    "\x7f\x01",
]
NAMES = [
    "a b",
    "select",
    "SELECT",
    "from",
    "A",
    'quo"te',
    "quo'te",
    "--",
    ";",
    "a.b",
    "ü",
    "日本",
    "🦆",
    "1a",
    " ",
    "new\nline",
    "*x",
    "%",
    "a\\b",
    "group",
    "values",
    "interval",
    "rowid",
    "l",
    "r",
    "_shared_1",
    "_",
    "x" * 300,
    "day",
    "rows",
    "range",
    "true",
    "null",
    "current_date",
    "order",
    "\t",
    "position",
]


class Colour(enum.Enum):
    RED = "red"


@pytest.fixture(scope="module")
def here():
    with brant.Session(distribute="never") as s:
        yield s


def value(session, v):
    return brant.sql("SELECT 1 AS one", session=session).select(v=lit(v)).item()


def values(session, *given):
    """Constants there and back, in one query."""
    return list(brant.range(1, session=session).select(**{f"v{i}": lit(v) for i, v in enumerate(given)}).to_pylist()[0].values())


def test_strings(here):
    assert values(here, *TEXTS) == TEXTS
    assert values(here, *({"k": [t, None]} for t in TEXTS)) == [{"k": [t, None]} for t in TEXTS]
    frame = brant.from_pydict({"i": list(range(len(TEXTS))), "s": TEXTS}, session=here)
    assert frame.select(**{f"n{i}": (col("s") == t).cast(int).sum() for i, t in enumerate(TEXTS)}).to_pylist()[0] == {
        f"n{i}": 1 for i in range(len(TEXTS))
    }
    assert frame.sort("i").to_pydict()["s"] == TEXTS


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names(here, name):
    df = brant.from_pydict({name: [2, 1, 2], "other": [1, 2, 3]}, session=here)
    assert df.columns == [name, "other"]
    assert df.select(name).to_pydict() == {name: [2, 1, 2]} == df.exclude("other").to_pydict()
    assert df.with_columns((col(name) + 1).alias("new name")).sort(name).to_pydict()["new name"] == [2, 3, 3]
    assert df.group_by(name).agg(col("other").sum()).sort(name).to_pylist() == [{name: 1, "other": 2}, {name: 2, "other": 4}]
    assert df.rename({"other": name + "2"}).columns == [name, name + "2"] and df.columns == [name, "other"]
    assert df.where(col(name) > 1).join(df, on=name).sort("other", "other_right").to_pydict() == {
        name: [2, 2, 2, 2],
        "other": [1, 1, 3, 3],
        "other_right": [1, 3, 1, 3],
    }
    assert df.select(s=f.struct(name)).select(col("s").struct.get(name)).to_pydict() == {name: [2, 1, 2]}
    assert df.unpivot(name, "other").columns == [name, "variable", "value"]
    assert df.with_columns({name: col("other")}).to_pydict() == {name: [1, 2, 3], "other": [1, 2, 3]}


VALUES = [
    True,
    False,
    None,
    0,
    1,
    -1,
    2**31 - 1,
    -(2**31),
    2**31,
    2**63 - 1,
    -(2**63),
    1.5,
    0.1,
    -0.0,
    1e300,
    5e-324,
    1e22,
    123456789.123456789,
    D("1.23"),
    D("-0.001"),
    D("1E+5"),
    D("12345678901234567890123456789012345678"),
    b"",
    b"\x00\xff'\\",
    bytes(range(256)),
    dt.date(1, 1, 1),
    dt.date(9999, 12, 31),
    dt.datetime(2024, 2, 29, 23, 59, 59, 999999),
    dt.datetime(1, 1, 1),
    dt.time(23, 59, 59, 1),
    dt.timedelta(days=-1, microseconds=5),
    [1, None, 3],
    [],
    [[1], [], None],
    {"a": 1, "b'": {"c": [None]}},
    [{"a": 1}, {"a": None}],
]


def test_values(here):
    for v, got in zip(VALUES, values(here, *VALUES)):
        if isinstance(v, dt.timedelta):
            assert got.days * 86400 * 10**9 + got.nanoseconds == v // dt.timedelta(microseconds=1) * 1000
        elif isinstance(v, D):
            assert D(got) == v
        else:
            assert got == v and type(got) is type(v) and (not isinstance(v, float) or math.copysign(1, got) == math.copysign(1, v))


def test_special_values(here):
    assert math.isnan(value(here, float("nan"))) and value(here, float("inf")) == math.inf and value(here, float("-inf")) == -math.inf
    assert value(here, 2**127 - 1 - 2**126) == D(2**126 - 1)
    moment = dt.datetime(2024, 7, 1, 12, 0, 0, 5, tzinfo=EAST)
    assert value(here, moment) == moment
    assert value(here, uuid.UUID(int=5)) in (uuid.UUID(int=5), str(uuid.UUID(int=5)), uuid.UUID(int=5).bytes)
    assert value(here, Colour.RED) == "red"
    assert value(here, {1: "a", 2: None}) == [(1, "a"), (2, None)]
    assert value(here, {}) == []
    assert value(here, (1, 2)) == [1, 2] == value(here, range(1, 3))


def test_numbers_keep_their_types(here):
    types = (
        brant.sql("SELECT 1", session=here)
        .select(a=lit(1), b=lit(2**40), c=lit(2**64), d=lit(1.0), e=lit(D("1.50")), g=lit(True), h=lit(2**127))
        .dtypes
    )
    assert types == ["INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "DECIMAL(3,2)", "BOOLEAN", "UHUGEINT"]


@pytest.mark.parametrize(
    "v", [2**128, -(2**127) - 1, D("1" * 39), "\ud800", object(), {"a\0": 1}, 1j, lambda: 0], ids=lambda v: type(v).__name__
)
def test_values_that_are_refused(v):
    with pytest.raises(brant.Error):
        lit(v)


@pytest.mark.parametrize("name", ["", None, 3, "a\0b", "\udfff"], ids=repr)
def test_names_that_are_refused(here, name):
    with pytest.raises(brant.Error):
        brant.sql("select 1 as a", session=here).select(lit(1).alias(name)).to_pydict()
    with pytest.raises(brant.Error):
        col(name).sql()


def test_numpy_scalars(here):
    np = pytest.importorskip("numpy")
    for v in (np.int8(-5), np.uint64(2**64 - 1), np.float32(0.5), np.float64(0.1), np.bool_(True), np.str_("a'b"), np.bytes_(b"x")):
        assert value(here, v) == v.item()
    assert brant.sql("SELECT 1", session=here).select(a=lit(np.int8(1)), b=lit(np.float32(1)), c=lit(np.uint16(1))).dtypes == [
        "TINYINT",
        "FLOAT",
        "USMALLINT",
    ]
    assert value(here, np.datetime64("2024-01-02")) == dt.date(2024, 1, 2)
    assert value(here, np.datetime64("2024-01-02T03:04:05.000006")) == dt.datetime(2024, 1, 2, 3, 4, 5, 6)
    assert (
        brant.sql("SELECT 1", session=here)
        .select(a=lit(np.datetime64("2024-01-02T03:04:05.000000007")).cast(str))
        .item()
        .endswith("05.000000007")
    )
    assert value(here, np.datetime64("NaT")) is None
    assert value(here, np.array([1.5, 2.5])) == [1.5, 2.5]
    assert value(here, np.array([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]


def test_pandas_scalars(here):
    pd = pytest.importorskip("pandas")
    assert value(here, pd.NA) is None and value(here, pd.NaT) is None
    assert value(here, pd.Timestamp("2024-01-02 03:04:05.6")) == dt.datetime(2024, 1, 2, 3, 4, 5, 600000)
    assert value(here, pd.Timestamp("2024-01-02 03:04:05", tz="UTC")) == dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert value(here, pd.Series([1, 2])) == [1, 2]


def test_pyarrow_scalars(here):
    assert value(here, pa.scalar(5, pa.int8())) == 5
    assert brant.sql("SELECT 1", session=here).select(a=lit(pa.scalar(5, pa.uint8())), b=lit(pa.scalar(None, pa.date32()))).dtypes == [
        "UTINYINT",
        "DATE",
    ]


TYPES = [
    (int, "BIGINT"),
    (str, "VARCHAR"),
    (bool, "BOOLEAN"),
    (dt.date, "DATE"),
    (dt.datetime, "TIMESTAMP"),
    (bytes, "BLOB"),
    (float, "DOUBLE"),
    ("decimal(10, 2)", "DECIMAL(10,2)"),
    ("int[]", "INTEGER[]"),
    ('struct("a b" int)', 'STRUCT("a b" INTEGER)'),
    (list[int], "BIGINT[]"),
    (dict[str, int], "MAP(VARCHAR, BIGINT)"),
    ({"a": int, "b c": list[str]}, 'STRUCT(a BIGINT, "b c" VARCHAR[])'),
    (pa.int16(), "SMALLINT"),
    (pa.list_(pa.float32()), "FLOAT[]"),
    (pa.timestamp("ns"), "TIMESTAMP_NS"),
    (pa.timestamp("us", "UTC"), "TIMESTAMP WITH TIME ZONE"),
    (pa.decimal128(12, 3), "DECIMAL(12,3)"),
    (pa.map_(pa.string(), pa.int32()), "MAP(VARCHAR, INTEGER)"),
    (pa.struct([("x", pa.bool_())]), "STRUCT(x BOOLEAN)"),
    (pa.dictionary(pa.int32(), pa.string()), "VARCHAR"),
    (pa.list_(pa.int8(), 3), "TINYINT[3]"),
]


def test_types(here):
    frame = brant.range(1, session=here).select(n=lit(None))
    got = frame.select(
        **{f"t{i}": col("n").cast(given) for i, (given, _) in enumerate(TYPES)},
        **{f"u{i}": col("n").try_cast(given) for i, (given, _) in enumerate(TYPES)},
    )
    assert got.dtypes == [name for _, name in TYPES] * 2


@pytest.mark.parametrize("bad", ["int); drop table t; --", "int) + (1", "", "'", object, complex, 5, "a'"], ids=repr)
def test_types_that_are_refused(bad):
    with pytest.raises(brant.Error):
        col("a").cast(bad)


EXPRESSIONS = [
    (lambda a, b: (a + b) * 2 - a / 4, lambda a, b: (a + b) * 2 - a / 4),
    (lambda a, b: a - (b - 1) - 2, lambda a, b: a - (b - 1) - 2),
    (lambda a, b: -(a - b) % 3, lambda a, b: math.fmod(-(a - b), 3)),
    (lambda a, b: a // b, lambda a, b: int(a / b)),
    (lambda a, b: 2 - a, lambda a, b: 2 - a),
    (lambda a, b: -(a**2), lambda a, b: -(a**2)),
    (lambda a, b: (-a) ** 2, lambda a, b: (-a) ** 2),
    (lambda a, b: 10 / a, lambda a, b: 10 / a),
    (lambda a, b: (a > 2) & (b < 5) | ~(a == b), lambda a, b: (a > 2) and (b < 5) or not (a == b)),
    (lambda a, b: ((a > 2) | (b < 5)) & (a != b), lambda a, b: ((a > 2) or (b < 5)) and (a != b)),
    (lambda a, b: ~((a > 2) & (b > 2)), lambda a, b: not (a > 2 and b > 2)),
    (lambda a, b: (a > 2) == (b > 2), lambda a, b: (a > 2) == (b > 2)),
    (lambda a, b: a.between(b, b + 2) | (a == 1), lambda a, b: b <= a <= b + 2 or a == 1),
    (lambda a, b: a.is_in([1, 3, b]), lambda a, b: a in (1, 3, b)),
    (lambda a, b: ~a.is_in(1, 2), lambda a, b: a not in (1, 2)),
    (lambda a, b: a.is_in([]), lambda a, b: False),
    (lambda a, b: ~a.is_in([]), lambda a, b: True),
    (lambda a, b: (a + b).is_null(), lambda a, b: False),
    (lambda a, b: ~(a == 2).is_null() & (b > 0), lambda a, b: b > 0),
    (lambda a, b: (a == b).cast(int) + 1, lambda a, b: (a == b) + 1),
    (lambda a, b: a.clip(2, 3), lambda a, b: min(max(a, 2), 3)),
    (lambda a, b: abs(a - b), lambda a, b: abs(a - b)),
    (lambda a, b: a.bitwise_and(b).shift_left(2), lambda a, b: (a & b) << 2),
    (lambda a, b: (a.bitwise_or(b) + 1).bitwise_xor(1), lambda a, b: ((a | b) + 1) ^ 1),
    (lambda a, b: (a > b).if_else(a, b), max),
    (lambda a, b: brant.coalesce(a.null_if(b), 99), lambda a, b: 99 if a == b else a),
    (lambda a, b: (a * 2.5).round(), lambda a, b: math.floor(a * 2.5 + 0.5)),
    (lambda a, b: "x" + a.cast(str) + "-" + b.cast(str), lambda a, b: f"x{a}-{b}"),
    (lambda a, b: a.eq_null_safe(b) | a.ne_null_safe(b), lambda a, b: True),
    (lambda a, b: lit(-5) - a, lambda a, b: -5 - a),
    (lambda a, b: a - -5, lambda a, b: a + 5),
    (lambda a, b: -(-a), lambda a, b: a),
    (lambda a, b: True & (a > b), lambda a, b: a > b),
    (lambda a, b: brant.sql_expr("a + b") * 2, lambda a, b: (a + b) * 2),
    (lambda a, b: brant.sql_expr("a or b") & (a > 3), lambda a, b: a > 3),
]


def test_operators_as_in_python(here):
    pairs = [(a, b) for a in (1, 2, 3, 4) for b in (1, 2, 3, 7)]
    df = brant.from_pydict({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}, session=here)
    frame = df.select(**{f"e{i}": build(col("a"), col("b")) for i, (build, _) in enumerate(EXPRESSIONS)})
    got = frame.to_pydict()
    for i, (build, python) in enumerate(EXPRESSIONS):
        assert got[f"e{i}"] == [python(a, b) for a, b in pairs], build(col("a"), col("b"))


def test_mistakes_have_words():
    for wrong, words in (
        (lambda: bool(col("a") > 1), "truth value"),
        (lambda: 1 < col("a") < 3, "truth value"),
        (lambda: col("a") == None, "is_null"),  # noqa: E711
        (lambda: list(col("a")), "iterated"),
        (lambda: (col("a") + 1).over("b"), "over"),
        (lambda: col("a").filter(True), "aggregate"),
        (lambda: brant.when(col("a") > 1).otherwise(2), "no value"),
        (lambda: brant.sql_expr(" "), "empty"),
    ):
        with pytest.raises((TypeError, brant.Error), match=words):
            wrong()


STRINGS = ["Hello World", "", "a,b,,c", "日本語 text", None, "  pad  "]


STRING_FUNCTIONS = [
    (lambda s: s.str.lower(), str.lower),
    (lambda s: s.str.upper(), str.upper),
    (lambda s: s.str.capitalize(), str.capitalize),
    (lambda s: s.str.length(), len),
    (lambda s: s.str.len_bytes(), lambda s: len(s.encode())),
    (lambda s: s.str.strip(), str.strip),
    (lambda s: s.str.lstrip(), str.lstrip),
    (lambda s: s.str.contains("o"), lambda s: "o" in s),
    (lambda s: s.str.startswith("He"), lambda s: s.startswith("He")),
    (lambda s: s.str.endswith("c"), lambda s: s.endswith("c")),
    (lambda s: s.str.find("o"), lambda s: s.find("o")),
    (lambda s: s.str.replace("o", "0"), lambda s: s.replace("o", "0")),
    (lambda s: s.str.split(","), lambda s: s.split(",")),
    (lambda s: s.str.slice(1, 3), lambda s: s[1:4]),
    (lambda s: s.str.slice(-3), lambda s: s[-3:]),
    (lambda s: s.str.left(2), lambda s: s[:2]),
    (lambda s: s.str.right(2), lambda s: s[-2:]),
    (lambda s: s.str.reverse(), lambda s: s[::-1]),
    (lambda s: s.str.repeat(2), lambda s: s * 2),
    (lambda s: s.str.zfill(3), lambda s: s[:3] if len(s) >= 3 else s.rjust(3, "0")),
    (lambda s: s + "!", lambda s: s + "!"),
    (lambda s: s.str.extract(r"(\w)o", 1), lambda s: "l" if "Hello" in s else ""),
    (lambda s: s.str.match("^[A-Z]"), lambda s: s[:1] == "H"),
    (lambda s: s.str.like("%o%"), lambda s: "o" in s),
    (lambda s: s.str.count_matches("[lo]"), lambda s: sum(c in "lo" for c in s)),
    (lambda s: s.str.concat("a", s), lambda s: s + "a" + s),
    (lambda s: s.str.normalize(lowercase=True, white_space=True), lambda s: " ".join(s.lower().split())),
    (lambda s: s.str.split(",").list.join("|"), lambda s: s.replace(",", "|")),
]


def test_string_functions(here):
    got = (
        brant.from_pydict({"s": STRINGS}, session=here)
        .select(**{f"e{i}": build(col("s")) for i, (build, _) in enumerate(STRING_FUNCTIONS)})
        .to_pydict()
    )
    for i, (build, python) in enumerate(STRING_FUNCTIONS):
        assert got[f"e{i}"] == [None if s is None else python(s) for s in STRINGS], build(col("s"))


LISTS = [[3, 1, 2], [], None, [5, None, 5]]


LIST_FUNCTIONS = [
    (lambda e: e.list.length(), [3, 0, None, 3]),
    (lambda e: e.list.get(0), [3, None, None, 5]),
    (lambda e: e[-1], [2, None, None, 5]),
    (lambda e: e.list.get(1, 0), [1, 0, 0, 0]),
    (lambda e: e.list.get(lit(1)), [1, None, None, None]),
    (lambda e: e[1:], [[1, 2], [], None, [None, 5]]),
    (lambda e: e.list.slice(0, 2), [[3, 1], [], None, [5, None]]),
    (lambda e: e.list.slice(0, -1), [[3, 1], [], None, [5, None]]),
    (lambda e: e.list.slice(-2), [[1, 2], [], None, [None, 5]]),
    (lambda e: e.list.sum(), [6, None, None, 10]),
    (lambda e: e.list.max(), [3, None, None, 5]),
    (lambda e: e.list.sort(), [[1, 2, 3], [], None, [5, 5, None]]),
    (lambda e: e.list.sort(desc=True), [[3, 2, 1], [], None, [5, 5, None]]),
    (lambda e: e.list.contains(5), [False, False, None, True]),
    (lambda e: e.list.distinct().list.length(), [3, 0, None, 1]),
    (lambda e: e.list.map(lambda x: x * 2), [[6, 2, 4], [], None, [10, None, 10]]),
    (lambda e: e.list.filter(lambda x: x > 1), [[3, 2], [], None, [5, 5]]),
    (lambda e: e.list.map(lambda x: x + col("x")), [[13, 11, 12], [], None, [45, None, 45]]),
    (lambda e: e.list.append(9), [[3, 1, 2, 9], [9], [9], [5, None, 5, 9]]),
    (lambda e: e.list.map(lambda x: f.list_value(x, 1).list.map(lambda y: y + 1)).list.length(), [3, 0, None, 3]),
    (lambda e: e.list.count(), [3, 0, None, 2]),
    (lambda e: e.list.reverse(), [[2, 1, 3], [], None, [5, None, 5]]),
    (lambda e: e.list.index_of(1), [1, None, None, None]),
]


def test_list_functions(here):
    frame = brant.from_pydict({"l": LISTS, "x": [10, 20, 30, 40]}, session=here)
    got = frame.select(**{f"e{i}": build(col("l")) for i, (build, _) in enumerate(LIST_FUNCTIONS)}).to_pydict()
    for i, (build, want) in enumerate(LIST_FUNCTIONS):
        assert got[f"e{i}"] == want, build(col("l"))


def test_date_functions(here):
    t = dt.datetime(2024, 2, 29, 13, 14, 15, 16)
    df = brant.from_pydict({"t": [t, None]}, session=here)
    e = col("t").dt
    want = {
        "year": 2024,
        "quarter": 1,
        "month": 2,
        "day": 29,
        "hour": 13,
        "minute": 14,
        "second": 15,
        "microsecond": 15000016 % 10**6,
        "day_of_week": t.weekday(),
        "day_of_year": 60,
        "week": 9,
        "date": t.date(),
        "time": t.time(),
        "last_day": dt.date(2024, 2, 29),
    }
    got = df.select(**{k: getattr(e, k)() for k in want}).to_pylist()
    assert got == [want, dict.fromkeys(want)]
    more = df.select(
        a=e.truncate("hour"),
        b=e.strftime("%d/%m"),
        c=e.to_unix_epoch(),
        d=e.to_unix_epoch("us"),
        g=e.offset_by(dt.timedelta(days=1, seconds=1)),
        h=e.diff(dt.date(2024, 1, 1)),
        i=col("t") - dt.timedelta(hours=1),
        s=lit("29.02.2024").str.to_date("%d.%m.%Y"),
    ).to_pylist()[0]
    us = (t - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    assert more == {
        "a": t.replace(minute=0, second=0, microsecond=0),
        "b": "29/02",
        "c": us // 10**6,
        "d": us,
        "g": t + dt.timedelta(days=1, seconds=1),
        "h": 59,
        "i": t - dt.timedelta(hours=1),
        "s": t.date(),
    }


def test_structs_and_maps(here):
    df = brant.from_pydict({"s": [{"x": 1, "Y z": "a"}, None]}, session=here)
    assert df.select(col("s").struct.get("x"), col("s")["Y z"]).to_pydict() == {"x": [1, None], "Y z": ["a", None]}
    m = df.select(m=lit({1: "one", 2: "two"}))
    assert m.select(a=col("m").map.get(2), b=col("m").map.get(3, "none"), c=col("m").map.keys(), d=col("m").map.length()).to_pylist()[
        0
    ] == {"a": "two", "b": "none", "c": [1, 2], "d": 2}


def test_functions_by_name(here):
    df = brant.from_pydict({"a": ["kitten", "x"], "n": [1, 2]}, session=here)
    assert df.select(f.levenshtein(col("a"), "sitting")).to_pydict() == {"a": [3, 7]}
    assert df.agg(f.sum("n"), m=f.max("a"), c=f.count(), d=f.string_agg("a", "-").order_by("n", desc=True)).to_pylist() == [
        {"n": 3, "m": "x", "c": 2, "d": "x-kitten"}
    ]
    assert df.select(
        f.list_(col("n")).over(order_by="n", rows=(None, None)).alias("l"),
        f.left(col("a"), 1),
        r=f.row_number().over(order_by=col("n").desc()),
    ).sort("r").to_pydict() == {"l": [[1, 2], [1, 2]], "a": ["x", "k"], "r": [1, 2]}
    assert df.select(s=f.struct("n", z=lit(1))).to_pylist()[0] == {"s": {"n": 1, "z": 1}}
    assert df.select(v=f.if_(col("n") > 1, "big", "small")).to_pydict() == {"v": ["small", "big"]}
    with pytest.raises(brant.Error, match="no_such_function"):
        df.select(f.no_such_function(col("n"))).to_pydict()
    assert df.select(
        "n", x=f.first_value(col("a")).over(order_by="n"), y=f.nth_value(col("a"), 2).ignore_nulls().over(order_by="n", rows=(None, None))
    ).to_pylist() == [{"n": 1, "x": "kitten", "y": "x"}, {"n": 2, "x": "kitten", "y": "x"}]
