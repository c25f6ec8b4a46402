# SPDX-License-Identifier: Apache-2.0
"""Every function of the engine by its name: `from brant import functions as f; f.levenshtein(col('a'), 'x'), f.count(), f.row_number().over(…)`.

Arguments that are not expressions are values, so write col('a') for a column; only for aggregates of one column (f.sum('a')) a string as the
first argument is a column's name. Named arguments become `name := value`. Names that Python reserves end with an underscore: f.list_, f.in_."""
from __future__ import annotations

from brant.expr import Call, Expr, call, coalesce, col, lit, sql_expr, when

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brant._types import Any, ColumnLike, Columns, Value
    from brant.expr import Order

_AGGREGATES = frozenset("""any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_min array_agg avg bit_and bit_or
bit_xor bool_and bool_or corr count count_if countif covar_pop covar_samp entropy favg first fsum geomean geometric_mean group_concat histogram
kahan_sum kurtosis kurtosis_pop last list listagg mad max max_by mean median min min_by mode product quantile quantile_cont quantile_disc
regr_slope sem skewness stddev stddev_pop stddev_samp string_agg sum sumkahan var_pop var_samp variance""".split())


def _function(name):
    def build(*args, **named):
        if args and isinstance(args[0], str) and name in _AGGREGATES:
            args = (col(args[0]), *args[1:])
        return call(name, *args, **named)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"The engine's function {name}."
    return build


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _function(name[:-1] if name.endswith("_") else name)


def count(column: ColumnLike = "*") -> Call:
    """count(*), or how many values of a column are not NULL."""
    return Call("count", [col(column) if isinstance(column, str) else column])


def unnest(column: ColumnLike) -> Expr:
    """A row for each element of a list."""
    return (col(column) if isinstance(column, str) else lit(column)).explode()


def desc(column: ColumnLike, nulls_first: bool | None = None) -> Order:
    """To sort by, the largest first."""
    return (col(column) if isinstance(column, str) else column).desc(nulls_first)


def asc(column: ColumnLike, nulls_first: bool | None = None) -> Order:
    """To sort by, the least first."""
    return (col(column) if isinstance(column, str) else column).asc(nulls_first)


def struct(*columns: Columns, **named: Value) -> Call:
    """A struct of these columns and expressions."""
    fields: list[Any] = [col(c) if isinstance(c, str) else c for c in columns]
    given: dict[str, Any] = {e.output_name(): e for e in fields}
    return call("struct_pack", **given, **named)


def list_(*values: Value) -> Call:
    """A list of these; with one column, the aggregate of its values."""
    if len(values) == 1 and isinstance(values[0], (str, Expr)):
        return call("list", col(values[0]) if isinstance(values[0], str) else values[0])
    return call("list_value", *values)


def monotonically_increasing_id() -> Call:
    """A number for each row, unique in the frame and growing within a partition."""
    return call("monotonically_increasing_id")


__all__ = ["asc", "coalesce", "col", "count", "desc", "lit", "monotonically_increasing_id", "sql_expr", "struct", "unnest", "when"]
