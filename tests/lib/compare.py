# SPDX-License-Identifier: Apache-2.0
"""Comparing two results: the same rows, as a list when the query orders them, else as a multiset; floats within 1e-9 relative
(sums of floats depend on the order of addition)."""
import collections
import datetime
import decimal
import math


def _sort_key(row):
    """Rounded first, so that equal multisets sort alike; then exact, so that neighbours keep apart."""
    return (_key(row), _key(row, exact=True))


def _key(v, exact=False):
    """A total order over values of mixed types, floats rounded unless exact."""
    if v is None:
        return (0,)
    if isinstance(v, bool):
        return (1, v)
    if isinstance(v, float):
        if math.isnan(v):
            return (2, 1, 0.0)
        return (2, 0, v if exact else float("%.7g" % v))
    if isinstance(v, (int, decimal.Decimal)):
        return (2, 0, v)
    if isinstance(v, str):
        return (3, v)
    if isinstance(v, bytes):
        return (4, v)
    if isinstance(v, (list, tuple)):
        return (5, tuple(_key(x, exact) for x in v))
    if isinstance(v, dict):
        return (6, tuple((k, _key(x, exact)) for k, x in v.items()))
    if isinstance(v, (datetime.date, datetime.time, datetime.timedelta)):
        return (7, str(type(v).__name__), str(v))
    return (8, str(type(v).__name__), str(v))


def same_value(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same_value(x, y) for x, y in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same_value(a[k], b[k]) for k in a)
    return a == b


def _hugeint(raw, signed):
    return None if raw is None else decimal.Decimal(int.from_bytes(raw, "little", signed=signed))


def _values(field_type, column):
    """A column's values; DuckDB's HUGEINT, which travels as an opaque extension type, as numbers."""
    kind = getattr(field_type, "type_name", "")
    if kind in ("hugeint", "uhugeint"):
        return [_hugeint(v, kind == "hugeint") for v in column.cast(field_type.storage_type).to_pylist()]
    return column.to_pylist()


def rows_of(table):
    """A pyarrow.Table as a list of tuples (columns of the same name stay apart)."""
    columns = [_values(f.type, c) for f, c in zip(table.schema, table.columns)]
    return list(zip(*columns)) if columns else [()] * table.num_rows


def unmatched(got, want):
    """The rows of each that have no equal one in the other: what is left is compared value by value, which takes a hundred times as long."""
    try:
        if collections.Counter(got) == collections.Counter(want):
            return [], []
    except TypeError:  # lists and dicts in them
        pass
    there = collections.Counter(map(repr, want))
    more, less = [], []
    for row in got:
        key = repr(row)
        if there[key] > 0:
            there[key] -= 1
        else:
            more.append(row)
    for row in want:
        key = repr(row)
        if there[key] > 0:
            there[key] -= 1
            less.append(row)
    return more, less


def difference(got, want, ordered):
    """None when equal, else one line about the first difference. got, want: lists of tuples."""
    if len(got) != len(want):
        return f"{len(got)} rows instead of {len(want)}"
    if not ordered:
        got, want = (sorted(rows, key=_sort_key) for rows in unmatched(got, want))
    for i, (g, w) in enumerate(zip(got, want)):
        if not same_value(g, w):
            return f"row {i}: {g!r} instead of {w!r}"
    return None
