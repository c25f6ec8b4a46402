# SPDX-License-Identifier: Apache-2.0
"""Groups and aggregates of DataFrames."""
from __future__ import annotations

from brant import foreign
from brant.expr import Expr, call, col, column, flatten
from brant.plan import check_unique, invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brant._types import Aggregates, Columns, Sequence, Sorting, Value
    from brant.dataframe import DataFrame

_NUMERIC = frozenset(["sum", "mean", "stddev", "var", "median", "skew", "product"])
_FUNCTIONS = {"mean": "mean", "avg": "mean", "sum": "sum", "min": "min", "max": "max", "count": "count", "stddev": "stddev", "std": "stddev",
              "var": "var", "median": "median", "any_value": "any_value", "first": "first", "last": "last", "list": "agg_list", "agg_list": "agg_list",
              "set": "agg_set", "agg_set": "agg_set", "concat": "agg_concat", "count_distinct": "count_distinct", "n_unique": "count_distinct",
              "nunique": "count_distinct", "skew": "skew", "product": "product", "approx_count_distinct": "approx_count_distinct"}


class GroupedDataFrame:
    """What group_by gives: agg(…), or the shortcuts sum, mean, count, …"""

    def __init__(self, frame, keys):
        self._frame, self._keys = frame, keys

    if not TYPE_CHECKING:
        def __getattr__(self, name):
            raise foreign.missing("GroupedDataFrame", name)

    def __getitem__(self, name):
        raise TypeError(f"groups have no columns to pick: .agg(col({name!r}).sum()) or .sum({name!r})")

    def agg(self, *aggregates: Aggregates, **named: Value) -> DataFrame:
        """A row for each group: .agg(col('a').sum(), n=functions.count()), or .agg({'a': 'sum', 'b': ['min', 'max']})."""
        return aggregate(self._frame, self._keys, aggregates, named)

    def _all(self, method, columns, *args):
        return shortcut(self._frame, self._keys, method, columns, *args)

    def sum(self, *columns: Columns) -> DataFrame:
        """The sum of these columns (none given: of all numbers) in each group."""
        return self._all("sum", columns)

    def mean(self, *columns: Columns) -> DataFrame:
        """The mean of these columns (none given: of all numbers) in each group."""
        return self._all("mean", columns)

    avg = mean

    def min(self, *columns: Columns) -> DataFrame:
        """The least value of these columns (none given: of all) in each group."""
        return self._all("min", columns)

    def max(self, *columns: Columns) -> DataFrame:
        """The largest value of these columns (none given: of all) in each group."""
        return self._all("max", columns)

    def stddev(self, *columns: Columns, ddof: int = 1) -> DataFrame:
        """The standard deviation in each group (none given: of all numbers); ddof=0: of the whole population."""
        return self._all("stddev", columns, ddof)

    def var(self, *columns: Columns, ddof: int = 1) -> DataFrame:
        """The variance in each group (none given: of all numbers); ddof=0: of the whole population."""
        return self._all("var", columns, ddof)

    def median(self, *columns: Columns) -> DataFrame:
        """The median of these columns (none given: of all numbers) in each group."""
        return self._all("median", columns)

    def skew(self, *columns: Columns) -> DataFrame:
        """The skewness of these columns (none given: of all numbers) in each group."""
        return self._all("skew", columns)

    def product(self, *columns: Columns) -> DataFrame:
        """The product of these columns (none given: of all numbers) in each group."""
        return self._all("product", columns)

    def any_value(self, *columns: Columns) -> DataFrame:
        """Some value that is not NULL of these columns (none given: of all) in each group."""
        return self._all("any_value", columns)

    def first(self, *columns: Columns) -> DataFrame:
        """The first value of these columns (none given: of all) in each group, in no order: agg(col(…).first().order_by(…)) has one."""
        return self._all("first", columns)

    def last(self, *columns: Columns) -> DataFrame:
        """The last value of these columns (none given: of all) in each group, in no order: agg(col(…).last().order_by(…)) has one."""
        return self._all("last", columns)

    def count_distinct(self, *columns: Columns) -> DataFrame:
        """How many different values these columns (none given: all) have in each group."""
        return self._all("count_distinct", columns)

    def count(self, *columns: Columns) -> DataFrame:
        """Values that are not NULL of these columns; without columns: rows of each group, as `count`."""
        return self._all("count", columns)

    def len(self, name: str = "len") -> DataFrame:
        """Rows of each group."""
        return self.agg(call("count", col("*")).alias(name))

    def agg_list(self, *columns: Columns) -> DataFrame:
        """The values of these columns (none given: of all) in each group, as lists."""
        return self._all("agg_list", columns)

    list_agg = list = agg_list

    def agg_set(self, *columns: Columns) -> DataFrame:
        """The different values of these columns (none given: of all) in each group, as lists without NULL."""
        return self._all("agg_set", columns)

    list_agg_distinct = agg_set

    def agg_concat(self, *columns: Columns, delimiter: str = "") -> DataFrame:
        """The strings of these columns (none given: of all) in each group, one after the other."""
        return self._all("agg_concat", columns, delimiter)

    string_agg = agg_concat

    def head(self, n: int = 1, order_by: Sorting | None = None, desc: bool | Sequence[bool] = False) -> DataFrame:
        """The first n rows of each group, in this order."""
        number = call("row_number").over(partition_by=self._keys, order_by=order_by, desc=desc)
        return self._frame.where(number <= n)


def _named(key, method):
    if isinstance(method, Expr):
        return method
    if not isinstance(method, str) or method not in _FUNCTIONS:
        raise invalid(f"there is no aggregate {method!r}; there are {', '.join(_FUNCTIONS)}; others: functions.<name>(…)")
    return getattr(col(key), _FUNCTIONS[method])()


def aggregate(frame, keys, aggregates, named):
    """One row a group of keys (none: one row). aggregates: expressions, dicts; named: name=expression."""
    exprs = []
    for a in flatten(aggregates):
        if isinstance(a, dict):
            for key, methods in a.items():
                several = isinstance(methods, (list, tuple))
                exprs += [_named(key, m).alias(f"{key}_{m}" if several else key) for m in (methods if several else [methods])]
        else:
            exprs.append(column(a))
    for name, e in named.items():
        if isinstance(e, tuple) and len(e) == 2:
            e = _named(*e)
        if not isinstance(e, Expr):
            raise invalid(f"agg({name}=…) takes an expression or (column, function), not {e!r}")
        exprs.append(e.alias(name))
    if not exprs:
        raise invalid("agg() needs an aggregate at least")
    frame._check(*exprs)
    taken = {k.output_name().lower() for k in keys}
    for e in exprs:
        if e.name is None and e.output_name().lower() in taken:
            raise invalid(f"the aggregate {e.sql()} would have the name of the key {e.output_name()}: give it another with .alias(…)")
    columns = frame._columns([*keys, *exprs])
    closed = ["columns", "distinct", "group", "order", "qualify", "cut", "unnest"]
    level = frame._level(*closed)
    if keys:
        level.group = ", ".join(k.sql() if c.source is not None else str(i + 1) for i, (k, c) in enumerate(zip(keys, columns)))
    return frame._with(level, columns, [*keys, *exprs])


def shortcut(frame, keys, method, columns, *args):
    """method of each of these columns; none given: of all that are no keys, and for sums and the like, numbers."""
    names = [column(c) for c in flatten(columns)]
    if not names and method == "count":
        return aggregate(frame, keys, [call("count", col("*")).alias("count")], {})
    if not names:
        from brant.dataframe import _NUMBERS
        taken = {k.output_name().lower() for k in keys}
        types = frame.schema if method in _NUMERIC else dict.fromkeys(frame.columns, "")
        names = [col(n) for n, t in types.items()
                 if n.lower() not in taken and (method not in _NUMERIC or (t.startswith(_NUMBERS) and not t.endswith("]")))]
        if not names:
            raise invalid(f"there is no column for {method}()")
    if method == "count" and len(names) == 1 and names[0].parts == ("*",):
        return aggregate(frame, keys, [call("count", col("*")).alias("count")], {})
    return aggregate(frame, keys, [getattr(e, method)(*args).alias(e.output_name()) for e in names], {})


def pivot(frame, group_by, pivot_col, value_col, agg_fn, names):
    """Aggregates with filters, one a value of pivot_col."""
    keys = frame._resolve(group_by)
    over, value = frame._resolve(pivot_col)[0], frame._resolve(value_col)[0]
    fetched = names is None
    if fetched:
        names = frame.select(over.alias("v")).distinct().sort("v").to_pydict()["v"]
    aggregates = []
    for n in names:
        e = _named(value.output_name(), agg_fn) if value.is_column() else getattr(value, _FUNCTIONS.get(agg_fn, agg_fn))()
        match = over.is_null() if n is None else over == n if fetched or not isinstance(n, str) else over.cast("VARCHAR") == n
        aggregates.append(e.filter(match).alias("NULL" if n is None else str(n)))
    if not aggregates:
        return frame.select(*keys).distinct()
    check_unique([k.output_name() for k in keys] + [a.output_name() for a in aggregates])
    return aggregate(frame, keys, aggregates, {})
