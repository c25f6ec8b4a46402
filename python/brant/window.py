# SPDX-License-Identifier: Apache-2.0
"""Windows, for Call.over: which rows a window function sees."""
from __future__ import annotations

from brant import errors
from brant.literal import literal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brant._types import Any, Columns, Sequence

UNBOUNDED = None


class _Begins:
    """A method that an object has, and its class: there it begins with a new object (Window.partition_by(…), as Spark has it)."""

    def __init__(self, method):
        self.method, self.__doc__ = method, method.__doc__

    def __get__(self, instance, owner):
        return self.method.__get__(owner() if instance is None else instance)


class Window:
    """Window().partition_by('a').order_by('t', desc=True).rows_between(-2, 0); col('x').sum().over(w)."""

    unbounded_preceding = None
    unbounded_following = None
    current_row = 0

    __slots__ = ("partition", "order", "frame")

    def __init__(self, partition=(), order=(), frame=""):
        self.partition, self.order, self.frame = list(partition), list(order), frame

    @_Begins
    def partition_by(self, *columns: Columns) -> Window:
        """One window for each value of these."""
        from brant.expr import column, flatten
        return Window([*self.partition, *(column(c) for c in flatten(columns))], self.order, self.frame)

    @_Begins
    def order_by(self, *columns: Columns, desc: bool | Sequence[bool] = False, nulls_first: bool | Sequence[bool] | None = None) -> Window:
        """The order inside."""
        from brant.expr import orders
        return Window(self.partition, [*self.order, *orders(columns, desc, nulls_first)], self.frame)

    @_Begins
    def rows_between(self, start: Any, end: Any) -> Window:
        """From start to end rows away: None is unbounded, 0 the current row, negative before it."""
        return Window(self.partition, self.order, frame_sql(rows=(start, end)))

    @_Begins
    def range_between(self, start: Any, end: Any) -> Window:
        """As rows_between, in distances of the value sorted by (a number, a timedelta)."""
        return Window(self.partition, self.order, frame_sql(range=(start, end)))

    def parts(self) -> list[Any]:
        """What stands inside OVER (…)."""
        from brant.expr import comma
        out = []
        if self.partition:
            out += ["PARTITION BY ", *comma([e.parts for e in self.partition])]
        if self.order:
            out += [" " if out else "", "ORDER BY ", *comma([o.parts for o in self.order])]
        return [*out, " " if out and self.frame else "", self.frame]


def frame_sql(**frames):
    """The text of a frame given as rows=, range= or groups=(start, end)."""
    given = [(k, v) for k, v in frames.items() if v is not None]
    if not given:
        return ""
    if len(given) > 1:
        raise errors.InvalidError("a window has one frame: rows, range or groups", "INVALID", "USER")
    (unit, bounds), = given
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise errors.InvalidError(f"a frame is a pair (start, end), not {bounds!r}", "INVALID", "USER")
    return f"{unit.upper()} BETWEEN {_bound(bounds[0], 'PRECEDING')} AND {_bound(bounds[1], 'FOLLOWING')}"


def _bound(value, unbounded):
    if value is None:
        return f"UNBOUNDED {unbounded}"
    zero = type(value)()
    if value == zero:
        return "CURRENT ROW"
    return f"{literal(-value)} PRECEDING" if value < zero else f"{literal(value)} FOLLOWING"
