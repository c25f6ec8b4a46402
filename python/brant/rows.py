# SPDX-License-Identifier: Apache-2.0
"""The few rows that show() prints, without pyarrow, whose import takes longer than a small query. What looks like a pyarrow.Table here is as
much of one as display.py needs; results with other types than the common ones are read by pyarrow."""
from brant import _native

_TYPES = {"b": "BOOLEAN", "c": "TINYINT", "C": "UTINYINT", "s": "SMALLINT", "S": "USMALLINT", "i": "INTEGER", "I": "UINTEGER", "l": "BIGINT",
          "L": "UBIGINT", "f": "FLOAT", "g": "DOUBLE", "u": "VARCHAR", "n": '"NULL"', "tdD": "DATE", "tsu:": "TIMESTAMP"}


class Column:
    """Values of one column."""

    def __init__(self, values):
        self.values = values

    def to_pylist(self):
        """The values."""
        return self.values


class Rows:
    """A small table. types: DuckDB's names."""

    def __init__(self, names, types, columns):
        self.column_names, self.types, self._columns = names, types, columns
        self.num_columns, self.num_rows = len(names), len(columns[0]) if columns else 0

    @property
    def columns(self):
        """The columns."""
        return [Column(c) for c in self._columns]

    def slice(self, start, length):
        """Some of the rows."""
        return Rows(self.column_names, self.types, [c[start:start + length] for c in self._columns])


class _Held:
    def __init__(self, capsule):
        self._capsule = capsule

    def __arrow_c_stream__(self, requested_schema=None):
        return self._capsule


def read(result):
    """All rows of a Result: Rows, or a pyarrow.Table if there is a type that is not simple."""
    capsule = result.__arrow_c_stream__()
    try:
        got = _native.read_columns(capsule)
        if got is None:
            import pyarrow as pa
            return pa.RecordBatchReader.from_stream(_Held(capsule)).read_all()
    except Exception:
        result._query.check()
        raise
    names, formats, columns = got
    return Rows(names, [_type(f) for f in formats], [_values(f, c) for f, c in zip(formats, columns)])


def _type(form):
    if form.startswith("d:"):
        precision, scale = form[2:].split(",")[:2]
        return f"DECIMAL({precision}, {scale})"
    return _TYPES.get(form, "TIMESTAMP WITH TIME ZONE")


def _values(form, values):
    if form[0] == "d":
        import decimal
        context, scale = decimal.Context(prec=40), int(form.split(",")[1])
        return [None if v is None else context.scaleb(decimal.Decimal(v), -scale) for v in values]
    if form == "tdD":
        return _moved(values, 86_400_000_000, lambda at: at.date())
    if form == "tsu:":
        return _moved(values, 1, lambda at: at)
    if form.startswith("tsu:"):
        import datetime
        import zoneinfo
        zone = zoneinfo.ZoneInfo(form[4:])
        return _moved(values, 1, lambda at: at.replace(tzinfo=datetime.timezone.utc).astimezone(zone))
    return values


def _moved(values, microseconds, convert):
    import datetime
    epoch = datetime.datetime(1970, 1, 1)

    def moved(v):
        try:
            return convert(epoch + datetime.timedelta(microseconds=v * microseconds))
        except OverflowError:  # what Python's dates can't say, infinity too
            return "(after year 9999)" if v > 0 else "(before year 1)"
    return [None if v is None else moved(v) for v in values]
