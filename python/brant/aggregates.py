# SPDX-License-Identifier: Apache-2.0
"""What expressions have for groups and windows: aggregates and functions over rows. Each is a call of the engine's function."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brant._types import Any, Callable, Text, Value
    from brant.expr import Call, Expr


class Aggregates:
    """A part of Expr."""

    __slots__ = ()

    if TYPE_CHECKING:  # what Expr has
        call: Callable[..., Call]
        cast: Callable[..., Expr]
        is_null: Callable[[], Expr]
        not_null: Callable[[], Expr]
        output_name: Callable[[], Text]

    def sum(self) -> Call:
        """The sum."""
        return self.call("sum")

    def mean(self) -> Call:
        """The mean."""
        return self.call("avg")

    avg = mean

    def min(self) -> Call:
        """The least value."""
        return self.call("min")

    def max(self) -> Call:
        """The largest value."""
        return self.call("max")

    def count(self, mode: Text = "valid") -> Call:
        """How many: valid (not NULL), null, or all."""
        if mode == "all":
            from brant.expr import Call, Expr
            return Call("count", [Expr(("*",))]).alias(self.output_name())  # type: ignore[return-value]  # which stays a Call
        if mode == "null":
            return self.is_null().call("count_if")
        if mode != "valid":
            from brant.expr import invalid
            raise invalid(f"mode must be valid, null or all, not {mode!r}")
        return self.call("count")

    def count_distinct(self) -> Call:
        """How many different values, NULL not counted."""
        return self.call("count").distinct()

    n_unique = count_distinct

    def approx_count_distinct(self) -> Call:
        """About how many different values: quick, off by some percent."""
        return self.call("approx_count_distinct")

    def stddev(self, ddof: int = 1) -> Call:
        """The standard deviation of a sample (ddof=0: of the whole population)."""
        return self.call("stddev_samp" if ddof == 1 else "stddev_pop")

    std = stddev

    def var(self, ddof: int = 1) -> Call:
        """The variance of a sample (ddof=0: of the whole population)."""
        return self.call("var_samp" if ddof == 1 else "var_pop")

    def median(self) -> Call:
        """The median: the middle value, or the mean of the two in the middle."""
        return self.call("median")

    def quantile(self, q: Any, interpolate: bool = True) -> Call:
        """The q-quantile (0 to 1, or a list of them), between two values if it lies there; interpolate=False: one of the values."""
        return self.call("quantile_cont" if interpolate else "quantile_disc", q)

    def approx_percentiles(self, q: Any) -> Call:
        """Approximate quantiles: q is a number or a list of them."""
        return self.cast("DOUBLE").call("approx_quantile", q)

    def skew(self) -> Call:
        """The skewness."""
        return self.call("skewness")

    def product(self) -> Call:
        """The product."""
        return self.call("product")

    def bool_and(self) -> Call:
        """Are all true?"""
        return self.call("bool_and")

    def bool_or(self) -> Call:
        """Is one true?"""
        return self.call("bool_or")

    def any_value(self) -> Call:
        """Some value that is not NULL."""
        return self.call("any_value")

    def first(self) -> Call:
        """The first value; give it an order: .first().order_by('t'), or over(order_by=…)."""
        return self.call("first")

    def last(self) -> Call:
        """The last value; give it an order: .last().order_by(…), or over(order_by=…)."""
        return self.call("last")

    def arg_min(self, by: Value) -> Call:
        """The value where `by` is least."""
        return self.call("arg_min", by)

    def arg_max(self, by: Value) -> Call:
        """The value where `by` is largest."""
        return self.call("arg_max", by)

    def agg_list(self) -> Call:
        """All values, as a list."""
        return self.call("list")

    implode = agg_list

    def agg_set(self) -> Call:
        """The distinct values that are not NULL, as a list."""
        return self.call("list").distinct().filter(self.not_null())

    def agg_concat(self, delimiter: Text = "") -> Call:
        """All strings one after the other."""
        return self.call("string_agg", delimiter)

    # ---- over rows

    def lag(self, n: int = 1, default: Value = None) -> Call:
        """The value n rows before, in a window: .lag().over(order_by=…)."""
        return self.call("lag", n) if default is None else self.call("lag", n, default)

    def lead(self, n: int = 1, default: Value = None) -> Call:
        """The value n rows after, in a window: .lead().over(order_by=…)."""
        return self.call("lead", n) if default is None else self.call("lead", n, default)

    def shift(self, n: int = 1) -> Call:
        """The value n rows before (after, if negative), in a window."""
        return self.lag(n) if n >= 0 else self.lead(-n)

    def rank(self) -> Call:
        """The rank of this value in its window: .rank().over() or .rank().over(partition_by=…)."""
        from brant.expr import Call
        return Call("rank", [], default_order=self)

    def dense_rank(self) -> Call:
        """As rank, without gaps after equal values."""
        from brant.expr import Call
        return Call("dense_rank", [], default_order=self)
