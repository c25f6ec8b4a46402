# SPDX-License-Identifier: Apache-2.0
"""The namespaces of expressions: .str .dt .list .struct .map. Each method is a function of the engine under the name that it usually has."""
from __future__ import annotations

from brant import foreign
from brant.expr import Expr, Ref, call, invalid, lit, to_expr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brant._types import Any, Callable, Value


class _Namespace:
    __slots__ = ("_e",)

    def __init__(self, expr):
        self._e = expr

    def _call(self, name, *args):
        return call(name, self._e, *args)

    if not TYPE_CHECKING:
        def __getattr__(self, name):
            raise foreign.missing(type(self).__name__, name)


class Strings(_Namespace):
    """Strings. Places are counted from 0, as in Python; lengths are in characters."""

    def lower(self) -> Expr:
        """In lower case."""
        return self._call("lower")

    def upper(self) -> Expr:
        """In upper case."""
        return self._call("upper")

    def capitalize(self) -> Expr:
        """The first letter in upper, the others in lower case."""
        first = call("upper", call("left", self._e, 1))
        return first + call("lower", self._e.str.slice(1))

    def length(self) -> Expr:
        """How many characters."""
        return self._call("length")

    len = len_chars = length

    def len_bytes(self) -> Expr:
        """How many bytes, as UTF-8."""
        return call("octet_length", call("encode", self._e))

    length_bytes = len_bytes

    def strip(self, characters: Value | None = None) -> Expr:
        """Without white space (or these characters) at both ends."""
        return self._call("trim") if characters is None else self._call("trim", characters)

    def lstrip(self, characters: Value | None = None) -> Expr:
        """Without white space (or these characters) at the start."""
        return self._call("ltrim") if characters is None else self._call("ltrim", characters)

    def rstrip(self, characters: Value | None = None) -> Expr:
        """Without white space (or these characters) at the end."""
        return self._call("rtrim") if characters is None else self._call("rtrim", characters)

    def contains(self, text: Value) -> Expr:
        """Is this text in it? (Of patterns: match.)"""
        return self._call("contains", text)

    def startswith(self, text: Value) -> Expr:
        """Does it begin so?"""
        return self._call("starts_with", text)

    def endswith(self, text: Value) -> Expr:
        """Does it end so?"""
        return self._call("ends_with", text)

    starts_with, ends_with = startswith, endswith

    def match(self, pattern: Value, flags: str | None = None) -> Expr:
        """Does the regular expression (RE2) match somewhere?"""
        return self._call("regexp_matches", pattern, *([flags] if flags else []))

    regexp = rlike = match

    def like(self, pattern: Value) -> Expr:
        """SQL's LIKE: % is any text, _ a character."""
        return self._e._binary("LIKE", pattern, 4)

    def ilike(self, pattern: Value) -> Expr:
        """LIKE without regard to case."""
        return self._e._binary("ILIKE", pattern, 4)

    def find(self, text: Value) -> Expr:
        """The place where text begins, or -1."""
        return self._call("strpos", text) - 1

    def replace(self, old: Value, new: Value, regex: bool = False) -> Expr:
        """All places; regex: old is a regular expression, \\1 in new its first group."""
        return self._call("regexp_replace", old, new, "g") if regex else self._call("replace", old, new)

    def extract(self, pattern: Value, group: int = 0) -> Expr:
        """The first match of a regular expression, or a group of it."""
        return self._call("regexp_extract", pattern, group)

    def extract_all(self, pattern: Value, group: int = 0) -> Expr:
        """All matches, as a list."""
        return self._call("regexp_extract_all", pattern, group)

    def count_matches(self, pattern: Value) -> Expr:
        """How many matches of a regular expression."""
        return call("len", self.extract_all(pattern))

    def split(self, separator: Value, regex: bool = False) -> Expr:
        """Cut at a separator (or a regular expression), as a list."""
        return self._call("string_split_regex" if regex else "string_split", separator)

    def slice(self, start: Value, length: Value | None = None) -> Expr:
        """From a place on (negative: from the end), at most `length` characters."""
        begin = start + 1 if isinstance(start, int) and start >= 0 else start if isinstance(start, int) else to_expr(start) + 1
        return self._call("substring", begin, *([] if length is None else [length]))

    substr = slice

    def left(self, n: Any) -> Expr:
        """The first n characters."""
        return self._call("left", n)

    def right(self, n: Any) -> Expr:
        """The last n characters."""
        return self._call("right", n)

    def head(self, n: Any = 5) -> Expr:
        """The first n characters."""
        return self._call("left", n)

    def tail(self, n: Any = 5) -> Expr:
        """The last n characters."""
        return self._call("right", n)

    def reverse(self) -> Expr:
        """Backwards."""
        return self._call("reverse")

    def repeat(self, n: Any) -> Expr:
        """n times, one after the other."""
        return self._call("repeat", n)

    def lpad(self, length: Value, pad: Value = " ") -> Expr:
        """Filled up at the start to a length; longer ones are cut."""
        return self._call("lpad", length, pad)

    def rpad(self, length: Value, pad: Value = " ") -> Expr:
        """Filled up at the end to a length; longer ones are cut."""
        return self._call("rpad", length, pad)

    def zfill(self, length: Value) -> Expr:
        """Filled up with zeros at the start to a length; longer ones are cut."""
        return self._call("lpad", length, "0")

    def concat(self, *others: Value) -> Expr:
        """With these behind it; NULL if one is NULL."""
        e = self._e
        for o in others:
            e = e._binary("||", o, 5, True)
        return e

    def normalize(self, remove_punct: bool = False, lowercase: bool = False, nfd_unicode: bool = False, white_space: bool = False) -> Expr:
        """What Daft's normalize does, step by step."""
        e = self._e
        if nfd_unicode:
            e = call("strip_accents", e)
        if lowercase:
            e = e.str.lower()
        if remove_punct:
            e = e.str.replace(r"[[:punct:]]", "", regex=True)
        if white_space:
            e = e.str.replace(r"\s+", " ", regex=True).str.strip()
        return e

    def to_date(self, format: str | None = None) -> Expr:
        """A date: ISO, or by a format of strptime."""
        return self._e.cast("DATE") if format is None else self._call("strptime", format).cast("DATE")

    def to_datetime(self, format: str | None = None) -> Expr:
        """A timestamp: ISO, or by a format of strptime."""
        return self._e.cast("TIMESTAMP") if format is None else self._call("strptime", format)

    def json(self, path: Value) -> Expr:
        """What a JSON path finds, as a string."""
        return self._call("json_extract_string", path)

    def levenshtein(self, other: Value) -> Expr:
        """How many characters must change to make the other of it."""
        return self._call("levenshtein", other)

    def jaccard(self, other: Value) -> Expr:
        """The Jaccard similarity of the sets of characters, 0 to 1."""
        return self._call("jaccard", other)

    def encode(self) -> Expr:
        """Its UTF-8 bytes."""
        return self._call("encode")

    def base64(self) -> Expr:
        """Its UTF-8 bytes in base 64."""
        return call("base64", self.encode())

    def md5(self) -> Expr:
        """The MD5 of its UTF-8 bytes, in hex."""
        return self._call("md5")

    def sha256(self) -> Expr:
        """The SHA-256 of its UTF-8 bytes, in hex."""
        return self._call("sha256")


class Dates(_Namespace):
    """Dates, times, timestamps, intervals."""

    def _part(self, name):
        return call(name, self._e)

    def year(self) -> Expr:
        """The year."""
        return self._part("year")

    def quarter(self) -> Expr:
        """The quarter, 1 to 4."""
        return self._part("quarter")

    def month(self) -> Expr:
        """The month, 1 to 12."""
        return self._part("month")

    def week(self) -> Expr:
        """The ISO week of the year."""
        return self._part("week")

    week_of_year = week

    def day(self) -> Expr:
        """The day of the month."""
        return self._part("day")

    def hour(self) -> Expr:
        """The hour, 0 to 23."""
        return self._part("hour")

    def minute(self) -> Expr:
        """The minute, 0 to 59."""
        return self._part("minute")

    def second(self) -> Expr:
        """The second, 0 to 59."""
        return self._part("second")

    def millisecond(self) -> Expr:
        """Milliseconds of the second, 0 to 999."""
        return call("millisecond", self._e) % 1000

    def microsecond(self) -> Expr:
        """Microseconds of the second, 0 to 999999."""
        return call("microsecond", self._e) % 1000000

    def day_of_week(self) -> Expr:
        """Monday is 0, as in Python's weekday()."""
        return call("isodow", self._e) - 1

    weekday = day_of_week

    def day_of_month(self) -> Expr:
        """The day of the month."""
        return self._part("day")

    def day_of_year(self) -> Expr:
        """The day of the year, from 1."""
        return self._part("dayofyear")

    ordinal_day = day_of_year

    def date(self) -> Expr:
        """The date."""
        return self._e.cast("DATE")

    def time(self) -> Expr:
        """The time of the day."""
        return self._e.cast("TIME")

    def truncate(self, unit: str) -> Expr:
        """Down to the start of its 'year', 'month', 'week', 'day', 'hour', …"""
        return call("date_trunc", unit, self._e)

    def strftime(self, format: str = "%Y-%m-%d %H:%M:%S") -> Expr:
        """As text, by a format of strftime."""
        return self._call("strftime", format)

    to_string = strftime

    def to_unix_epoch(self, unit: str = "s") -> Expr:
        """Whole seconds (s), ms, us or ns since 1970."""
        names = {"s": "epoch", "ms": "epoch_ms", "us": "epoch_us", "ns": "epoch_ns"}
        if unit not in names:
            raise invalid(f"unit must be one of {', '.join(names)}, not {unit!r}")
        e = call(names[unit], self._e)
        return call("floor", e).cast("BIGINT") if unit == "s" else e

    epoch = timestamp = to_unix_epoch

    def offset_by(self, delta: Value) -> Expr:
        """Later by a timedelta or an interval."""
        return self._e + delta

    def in_time_zone(self, zone: Value) -> Expr:
        """AT TIME ZONE: a timestamp with zone as local time there, one without as local time from there."""
        return call("timezone", zone, self._e)

    convert_time_zone = in_time_zone

    def diff(self, other: Value, unit: str = "day") -> Expr:
        """How many borders of the unit lie between other and this."""
        return call("date_diff", unit, other, self._e)

    def last_day(self) -> Expr:
        """The last day of its month."""
        return self._part("last_day")

    def total_seconds(self) -> Expr:
        """Of an interval: its seconds."""
        return call("epoch", self._e)


class Lists(_Namespace):
    """Lists. Places are counted from 0; negative ones from the end."""

    def length(self) -> Expr:
        """How many elements."""
        return self._call("len")

    len = lengths = length

    def count(self) -> Expr:
        """How many elements are not NULL."""
        return self._call("list_count")

    def get(self, index: Value, default: Value = None) -> Expr:
        """The element at a place; NULL, or the default, outside."""
        if isinstance(index, int) and not isinstance(index, bool):
            e = self._call("list_extract", index + 1 if index >= 0 else index)
        else:
            i = to_expr(index)
            e = self._call("list_extract", i + (i >= 0).cast("INTEGER"))
        return e if default is None else call("coalesce", e, default)

    def first(self) -> Expr:
        """The first element, or NULL."""
        return self.get(0)

    def last(self) -> Expr:
        """The last element, or NULL."""
        return self.get(-1)

    def slice(self, start: Value, end: Value | None = None) -> Expr:
        """From start on, up to and without end."""
        begin = start + 1 if start >= 0 else start
        if end is None:
            return self._call("list_slice", begin, call("len", self._e))
        return self._call("list_slice", begin, end if end >= 0 else end - 1)

    def head(self, n: Any = 5) -> Expr:
        """The first n elements."""
        return self.slice(0, n)

    def contains(self, value: Value) -> Expr:
        """Is this one of the elements?"""
        return self._call("list_contains", value)

    def index_of(self, value: Value) -> Expr:
        """Its first place, or NULL."""
        return self._call("list_position", value) - 1

    def join(self, separator: Value = "") -> Expr:
        """The elements as one text, with a separator between."""
        return self._call("array_to_string", separator)

    def sum(self) -> Expr:
        """The sum of the elements."""
        return self._call("list_sum")

    def mean(self) -> Expr:
        """The mean of the elements."""
        return self._call("list_avg")

    def min(self) -> Expr:
        """The least element."""
        return self._call("list_min")

    def max(self) -> Expr:
        """The largest element."""
        return self._call("list_max")

    def sort(self, desc: bool = False, nulls_first: bool = False) -> Expr:
        """Sorted."""
        return self._call("list_sort", "DESC" if desc else "ASC", "NULLS FIRST" if nulls_first else "NULLS LAST")

    def reverse(self) -> Expr:
        """Backwards."""
        return self._call("list_reverse")

    def distinct(self) -> Expr:
        """Each value once, without NULLs; in no order."""
        return self._call("list_distinct")

    unique = distinct

    def concat(self, other: Value) -> Expr:
        """The elements of both."""
        return self._call("list_concat", other)

    def append(self, value: Value) -> Expr:
        """With one more element."""
        return self._call("list_append", value)

    def explode(self) -> Expr:
        """A row for each element."""
        return self._e.explode()

    def flatten(self) -> Expr:
        """Of a list of lists: the elements of all."""
        return self._call("flatten")

    def map(self, function: Callable[..., Any]) -> Expr:
        """function(element) for each: a Python function of an expression, called once, to build the SQL."""
        return self._lambda("list_transform", function)

    eval = map

    def filter(self, function: Callable[..., Any]) -> Expr:
        """The elements where function(element) is true."""
        return self._lambda("list_filter", function)

    def _lambda(self, name, function):
        element = Expr(("x",))
        depth = 0
        while any(isinstance(p, str) and f"lambda x{depth or ''}:" in p for p in self._e.parts):
            depth += 1
        variable = f"x{depth or ''}"
        element = Expr((variable,))
        body = function(element)
        body = body if isinstance(body, Expr) else lit(body)
        if any(isinstance(p, Ref) and p.name.lower() == variable for p in body.parts):
            variable = "x_of_the_list"
            body = function(Expr((variable,)))
        return call(name, self._e, Expr((f"lambda {variable}: ", *body.parts), -1, None, body.kinds, body.udfs))


class Structs(_Namespace):
    """Structs."""

    def get(self, name: str) -> Expr:
        """A field; the result has its name."""
        return call("struct_extract", self._e, name).alias(name)

    field = get

    def __getitem__(self, name):
        return self.get(name)


class Maps(_Namespace):
    """Maps."""

    def get(self, key: Value, default: Value = None) -> Expr:
        """The value of a key, or the default."""
        e = self._call("map_extract_value", key)
        return e if default is None else call("coalesce", e, default)

    def keys(self) -> Expr:
        """The keys, as a list."""
        return self._call("map_keys")

    def values(self) -> Expr:
        """The values, as a list."""
        return self._call("map_values")

    def length(self) -> Expr:
        """How many entries."""
        return self._call("cardinality")

    def contains(self, key: Value) -> Expr:
        """Is there this key?"""
        return self._call("map_contains", key)
