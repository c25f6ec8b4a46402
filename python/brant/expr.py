# SPDX-License-Identifier: Apache-2.0
"""Expressions: what stands between SELECT and FROM, made of Python operators and methods. Nothing is computed here: an expression is a
piece of SQL text with its column names known, so that they can be checked, quoted and qualified. Literals are in literal.py, the
namespaces `.str .dt .list .struct .map` in namespaces.py."""
from __future__ import annotations

from brant import errors, foreign, literal
from brant.aggregates import Aggregates
from brant.literal import quote, quote_function
from brant.window import UNBOUNDED, Window, frame_sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brant._types import Any, Callable, ColumnLike, Columns, Condition, Dtype, Frame, List, Sequence, Sorting, Text, Value
    from brant.namespaces import Dates, Lists, Maps, Strings, Structs

# How tight an operator holds; operands that hold less get parentheses.
_OR, _AND, _NOT, _IS, _COMPARE, _OTHER, _ADD, _MULTIPLY, _UNARY, _ATOM = range(10)


class Ref:
    """A column's name inside the text of an expression."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name


def invalid(message):
    """The exception for what the caller got wrong."""
    return errors.InvalidError(message, "INVALID", "USER")


def comma(items, separator=", "):
    """Lists of parts, joined."""
    out = []
    for i, parts in enumerate(items):
        if i:
            out.append(separator)
        out.extend(parts)
    return out


class Expr(Aggregates):
    """A value for each row (or, with aggregates, for each group). Made by col, lit, when, sql_expr, functions.*; combined by operators:
    + - * / // % **, == != < <= > >=, & | ~ (and, or, not). `.alias(name)` names it, else it has the name of its first column."""

    __slots__ = ("parts", "strength", "name", "kinds", "udfs", "text")

    def __init__(self, parts, strength=_ATOM, name=None, kinds=frozenset(), udfs=(), text=False):
        self.parts, self.strength, self.name, self.kinds, self.udfs = tuple(parts), strength, name, kinds, udfs
        self.text = text  # surely a string: + joins it

    if not TYPE_CHECKING:
        def __getattr__(self, name):
            raise foreign.missing("Expr", name)

    # ---- as text

    def sql(self, qualifier: Text | None = None) -> Text:
        """The SQL text. qualifier: a table alias to put before each column."""
        before = quote(qualifier) + "." if qualifier else ""
        return "".join(p if isinstance(p, str) else before + quote(p.name) for p in self.parts)

    def refs(self) -> List[Text]:
        """The names of the columns that it reads, as written."""
        return [p.name for p in self.parts if not isinstance(p, str)]

    def output_name(self) -> Text:
        """The name that its result has."""
        if self.name is not None:
            return self.name
        names = self.refs()
        return names[0] if names else self._default_name()

    def _default_name(self):
        return "literal"

    def is_column(self) -> bool:
        """Is it just a column?"""
        return len(self.parts) == 1 and not isinstance(self.parts[0], str)

    def __repr__(self):
        return f"<Expr {self.sql()}{' AS ' + quote(self.name) if self.name is not None else ''}>"

    def __bool__(self):
        raise TypeError("an expression has no truth value: write & | ~ for and, or, not (with parentheses around comparisons), "
                        ".is_in(…) for `in`, .between(…) for a < b < c, functions.greatest(…) for max(…)")

    def __iter__(self):
        raise TypeError("an expression can't be iterated over; its sum is col(…).sum(); elements of lists: .list.get(i), .explode()")

    __hash__ = object.__hash__

    # ---- building

    def _within(self, strength):
        return self.parts if self.strength >= strength else ("(", *self.parts, ")")

    def alias(self, name: Text) -> Expr:
        """The same under another name."""
        if not isinstance(name, str) or not name:
            raise invalid(f"a column's name must be a string that isn't empty, not {name!r}")
        e = self._copy()
        e.name = name
        return e

    def _copy(self):
        return Expr(self.parts, self.strength, self.name, self.kinds, self.udfs, self.text)

    def _binary(self, op, other, strength, chain=False, swap=False, tight=None):
        left, right = (to_expr(other), self) if swap else (self, to_expr(other))
        parts = (*left._within(strength if chain else (tight or strength + 1)), f" {op} ", *right._within(tight or strength + 1))
        return Expr(parts, strength, None, left.kinds | right.kinds, left.udfs + right.udfs, op == "||")

    def _suffix(self, text, strength=_IS):
        return Expr((*self._within(strength + 1), text), strength, None, self.kinds, self.udfs)

    def call(self, name: Text, *args: Any, **named: Value) -> Call:
        """Any function of the engine, with this as its first argument: col('a').call('levenshtein', 'x')."""
        return call(name, self, *args, **named)

    def pipe(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """function(self, …): for chains."""
        return function(self, *args, **kwargs)

    # ---- operators

    def __add__(self, other: Value) -> Expr:
        """A sum; of strings (where it is seen that one side is a string), one after the other."""
        other = to_expr(other)
        return self._binary("||", other, _OTHER, True) if self._is_text() or other._is_text() else self._binary("+", other, _ADD, True)

    def __radd__(self, other: Value) -> Expr:
        return to_expr(other) + self

    def _is_text(self):
        return self.text

    def __sub__(self, other: Value) -> Expr:
        return self._binary("-", other, _ADD, True)

    def __rsub__(self, other: Value) -> Expr:
        return self._binary("-", other, _ADD, True, True)

    def __mul__(self, other: Value) -> Expr:
        return self._binary("*", other, _MULTIPLY, True)

    def __rmul__(self, other: Value) -> Expr:
        return self._binary("*", other, _MULTIPLY, True, True)

    def __truediv__(self, other: Value) -> Expr:
        return self._binary("/", other, _MULTIPLY, True)

    def __rtruediv__(self, other: Value) -> Expr:
        return self._binary("/", other, _MULTIPLY, True, True)

    def __floordiv__(self, other: Value) -> Expr:
        """`//` of the engine: integers divide towards zero."""
        return self._binary("//", other, _MULTIPLY, True)

    def __rfloordiv__(self, other: Value) -> Expr:
        return self._binary("//", other, _MULTIPLY, True, True)

    def __mod__(self, other: Value) -> Expr:
        """`%` of the engine: has the sign of the dividend."""
        return self._binary("%", other, _MULTIPLY, True)

    def __rmod__(self, other: Value) -> Expr:
        return self._binary("%", other, _MULTIPLY, True, True)

    def __pow__(self, other: Value) -> Expr:
        return call("pow", self, other)

    def __rpow__(self, other: Value) -> Expr:
        return call("pow", other, self)

    def __neg__(self) -> Expr:
        return Expr(("-", *self._within(_ATOM)), _UNARY, None, self.kinds, self.udfs)

    def __pos__(self) -> Expr:
        return self

    def __round__(self, digits: int = 0) -> Expr:
        return self.round(digits)

    def __abs__(self) -> Expr:
        return call("abs", self)

    def _compare(self, op, other):
        if other is None:
            raise invalid("comparing with None gives NULL for every row: write .is_null() or .not_null(), or .eq_null_safe(…)")
        return self._binary(op, other, _COMPARE)

    def __eq__(self, other: Value) -> Expr:  # type: ignore[override]
        return self._compare("=", other)

    def __ne__(self, other: Value) -> Expr:  # type: ignore[override]
        return self._compare("<>", other)

    def __lt__(self, other: Value) -> Expr:
        return self._compare("<", other)

    def __le__(self, other: Value) -> Expr:
        return self._compare("<=", other)

    def __gt__(self, other: Value) -> Expr:
        return self._compare(">", other)

    def __ge__(self, other: Value) -> Expr:
        return self._compare(">=", other)

    def __and__(self, other: Value) -> Expr:
        return self._binary("AND", other, _AND, True)

    def __rand__(self, other: Value) -> Expr:
        return self._binary("AND", other, _AND, True, True)

    def __or__(self, other: Value) -> Expr:
        return self._binary("OR", other, _OR, True)

    def __ror__(self, other: Value) -> Expr:
        return self._binary("OR", other, _OR, True, True)

    def __invert__(self) -> Expr:
        return Expr(("NOT ", *self._within(_IS)), _NOT, None, self.kinds, self.udfs)

    def __getitem__(self, key: Value) -> Expr:
        """An element: of a struct by its field's name, of a list by its place (from 0), a slice of a list."""
        if isinstance(key, str):
            return self.struct.get(key)
        if isinstance(key, slice):
            if key.step not in (None, 1):
                raise invalid("a slice of a list has no step")
            return self.list.slice(key.start or 0, key.stop)
        return self.list.get(key)

    # ---- tests

    def is_null(self) -> Expr:
        """Is it NULL?"""
        return self._suffix(" IS NULL")

    def not_null(self) -> Expr:
        """Is it not NULL?"""
        return self._suffix(" IS NOT NULL")

    is_not_null = not_null

    def is_nan(self) -> Call:
        """Is it NaN (not a number)? NULL for NULL."""
        return call("isnan", self)

    def not_nan(self) -> Expr:
        """Is it another number than NaN?"""
        return ~self.is_nan()

    def is_inf(self) -> Call:
        """Is it infinite?"""
        return call("isinf", self)

    def is_finite(self) -> Call:
        """Is it neither infinite nor NaN?"""
        return call("isfinite", self)

    def eq_null_safe(self, other: Value) -> Expr:
        """Equal, where NULL equals NULL: never NULL itself."""
        return self._binary("IS NOT DISTINCT FROM", other, _IS)

    eq_missing = eq_null_safe

    def ne_null_safe(self, other: Value) -> Expr:
        """Not equal, where NULL equals NULL."""
        return self._binary("IS DISTINCT FROM", other, _IS)

    def is_in(self, *values: Value) -> Expr:
        """Is it one of these? Values, a list of them, or a DataFrame of one column."""
        if len(values) == 1 and hasattr(values[0], "_node"):
            raise invalid("is_in takes values; for those of a DataFrame: df.join(other, how='semi', …)")
        if len(values) == 1 and not isinstance(values[0], (str, bytes, Expr)) and hasattr(values[0], "__iter__"):
            values = tuple(values[0])
        if not values:
            return Expr((*self._within(_IS), " IN (NULL) AND FALSE"), _AND, None, self.kinds, self.udfs)
        items = [to_expr(v) for v in values]
        parts = (*self._within(_OTHER), " IN (", *comma([i.parts for i in items]), ")")
        return Expr(parts, _COMPARE, None, _kinds(self, *items), _udfs(self, *items))

    isin = is_in

    def between(self, lower: Value, upper: Value) -> Expr:
        """lower <= self <= upper."""
        low, high = to_expr(lower), to_expr(upper)
        parts = (*self._within(_OTHER), " BETWEEN ", *low._within(_OTHER), " AND ", *high._within(_OTHER))
        return Expr(parts, _COMPARE, None, _kinds(self, low, high), _udfs(self, low, high))

    # ---- values

    def cast(self, dtype: Dtype) -> Expr:
        """As another type: DuckDB's name for it ('DECIMAL(10, 2)', 'INTEGER[]'), a Python type, or a pyarrow type. What can't be
        converted is an error; try_cast gives NULL."""
        name = literal.type_name(dtype)
        return Expr(("CAST(", *self.parts, f" AS {name})"), _ATOM, None, self.kinds, self.udfs, name.upper() == "VARCHAR")

    def try_cast(self, dtype: Dtype) -> Expr:
        """As cast, but NULL where it can't be."""
        return Expr(("TRY_CAST(", *self.parts, f" AS {literal.type_name(dtype)})"), _ATOM, None, self.kinds, self.udfs)

    def fill_null(self, value: Value) -> Call:
        """This, or the value where it is NULL."""
        return call("coalesce", self, value)

    def fill_nan(self, value: Value) -> Expr:
        """This, or the value where it is NaN."""
        return when(self.is_nan(), value).otherwise(self)

    def null_if(self, value: Value) -> Call:
        """This, or NULL where it equals the value."""
        return call("nullif", self, value)

    def if_else(self, if_true: Value, if_false: Value) -> Expr:
        """if_true where this is true, else if_false."""
        return when(self, if_true).otherwise(if_false)

    def apply(self, function: Callable[..., Any], **options: Any) -> Expr:
        """A Python function over each value: see brant.func."""
        import brant
        return brant.func(function, **options)(self)

    def abs(self) -> Call:
        """Without its sign."""
        return call("abs", self)

    def ceil(self) -> Call:
        """The least whole number that is not less."""
        return call("ceil", self)

    def floor(self) -> Call:
        """The largest whole number that is not more."""
        return call("floor", self)

    def round(self, decimals: Value = 0) -> Call:
        """Rounded to so many decimals, halves away from zero."""
        return call("round", self, decimals)

    def sign(self) -> Call:
        """-1, 0 or 1."""
        return call("sign", self)

    def sqrt(self) -> Call:
        """The square root."""
        return call("sqrt", self)

    def cbrt(self) -> Call:
        """The cube root."""
        return call("cbrt", self)

    def exp(self) -> Call:
        """e to the power of this."""
        return call("exp", self)

    def log(self, base: Value | None = None) -> Call:
        """The natural logarithm, or to this base."""
        return call("ln", self) if base is None else call("log", base, self)

    def log2(self) -> Call:
        """The logarithm to base 2."""
        return call("log2", self)

    def log10(self) -> Call:
        """The logarithm to base 10."""
        return call("log10", self)

    def pow(self, exponent: Value) -> Call:
        """To the power of the exponent."""
        return call("pow", self, exponent)

    def sin(self) -> Call:
        """The sine (of radians)."""
        return call("sin", self)

    def cos(self) -> Call:
        """The cosine (of radians)."""
        return call("cos", self)

    def tan(self) -> Call:
        """The tangent (of radians)."""
        return call("tan", self)

    def clip(self, lower: Value | None = None, upper: Value | None = None) -> Expr:
        """Not less than lower, not more than upper."""
        e = self if lower is None else call("greatest", self, lower)
        return e if upper is None else call("least", e, upper)

    def bitwise_and(self, other: Value) -> Expr:
        """The bits that both have."""
        return self._binary("&", other, _OTHER, False)

    def bitwise_or(self, other: Value) -> Expr:
        """The bits that one of both has."""
        return self._binary("|", other, _OTHER, False)

    def bitwise_xor(self, other: Value) -> Call:
        """The bits that only one of both has."""
        return call("xor", self, other)

    def shift_left(self, bits: Value) -> Expr:
        """Its bits so many places up."""
        return self._binary("<<", bits, _OTHER, False)

    def shift_right(self, bits: Value) -> Expr:
        """Its bits so many places down."""
        return self._binary(">>", bits, _OTHER, False)

    def hash(self) -> Call:
        """A number of 64 bits; equal values of one type have equal hashes."""
        return call("hash", self)

    def explode(self) -> Call:
        """A row for each element of the list."""
        return call("unnest", self)

    # ---- of one aggregate or window function only

    def over(self, partition_by: Columns | None = None, order_by: Sorting | None = None, **options: Any) -> Call:
        """Belongs to a call; here it is an error with words."""
        raise invalid(f"over() belongs to one aggregate or window function, not to {self.sql()}: col('a').sum().over(…) + 1")

    def filter(self, *conditions: Condition) -> Call:
        """Belongs to an aggregate; here it is an error with words."""
        raise invalid(f"filter() belongs to an aggregate, not to {self.sql()}: col('a').sum().filter(…)")

    def order_by(self, *by: Sorting, desc: bool | Sequence[bool] = False, nulls_first: bool | Sequence[bool] | None = None) -> Call:
        """Belongs to an aggregate; here it is an error with words."""
        raise invalid(f"order_by() belongs to an aggregate, not to {self.sql()}: col('a').agg_list().order_by('b')")

    # ---- order, for sort and order_by

    def desc(self, nulls_first: bool | None = None) -> Order:
        """Sort by this, the largest first."""
        return Order(self, True, nulls_first)

    def asc(self, nulls_first: bool | None = None) -> Order:
        """Sort by this, the least first."""
        return Order(self, False, nulls_first)

    # ---- namespaces

    @property
    def str(self) -> Strings:
        """Functions of strings."""
        from brant import namespaces
        return namespaces.Strings(self)

    @property
    def dt(self) -> Dates:
        """Functions of dates and times."""
        from brant import namespaces
        return namespaces.Dates(self)

    @property
    def list(self) -> Lists:
        """Functions of lists."""
        from brant import namespaces
        return namespaces.Lists(self)

    @property
    def struct(self) -> Structs:
        """Fields of structs."""
        from brant import namespaces
        return namespaces.Structs(self)

    @property
    def map(self) -> Maps:
        """Functions of maps."""
        from brant import namespaces
        return namespaces.Maps(self)


def _kinds(*exprs):
    return frozenset().union(*(e.kinds for e in exprs))


def _udfs(*exprs):
    return tuple(u for e in exprs for u in e.udfs)


class Order:
    """A key to sort by."""

    __slots__ = ("expr", "descending", "nulls_first")

    def __init__(self, expr, descending=False, nulls_first=None):
        self.expr, self.descending, self.nulls_first = expr, descending, nulls_first

    @property
    def parts(self):
        """Its SQL, as parts."""
        return (*self.expr.parts, " DESC" if self.descending else "",
                "" if self.nulls_first is None else " NULLS FIRST" if self.nulls_first else " NULLS LAST")


def orders(by, desc=False, nulls_first=None):
    """Sort keys from what sort() and order_by= take; desc and nulls_first: one for all, or one for each."""
    keys = flatten(by)
    return [k if isinstance(k, Order) else Order(column(k), d, n)
            for k, d, n in zip(keys, _each(desc, len(keys), "desc"), _each(nulls_first, len(keys), "nulls_first"))]


def _each(value, n, what):
    values = list(value) if isinstance(value, (list, tuple)) else [value] * n
    if len(values) != n:
        raise invalid(f"{what} has {len(values)} values for {n} sort keys")
    return values


def flatten(items):
    """One thing, or lists of things, as a list."""
    if isinstance(items, (list, tuple, set)):
        return [x for item in items for x in flatten(item)]
    return [] if items is None else [items]


_TEXT = frozenset("""upper lower trim ltrim rtrim left right substring replace reverse repeat lpad rpad regexp_replace regexp_extract strftime
concat concat_ws format printf md5 sha256 base64 string_agg array_to_string json_extract_string""".split())


class Call(Expr):
    """A function's call; aggregates have filter, distinct, order_by, over."""

    __slots__ = ("function", "args", "_distinct", "_order", "_filter", "_over", "_nulls", "_default_order")

    def __init__(self, function, args, distinct=False, order=(), where=None, over=None, nulls=None, default_order=None, name=None, udfs=(),
                 kinds=frozenset()):
        self.function, self.args, self._distinct, self._order = function, args, distinct, tuple(order)
        self._filter, self._over, self._nulls, self._default_order = where, over, nulls, default_order
        inner = [*args, *(o.expr for o in order), *([where] if where is not None else [])]
        parts = [quote_function(function), "(", "DISTINCT " if distinct else "", *comma([a.parts for a in args])]
        if order:
            parts += [" ORDER BY ", *comma([o.parts for o in order])]
        if nulls:
            parts.append(f" {nulls} NULLS")
        parts.append(")")
        if where is not None:
            parts += [" FILTER (WHERE ", *where.parts, ")"]
        kinds = _kinds(*inner) | kinds | (frozenset(["unnest"]) if function == "unnest" else frozenset())
        if over is not None:
            parts += [" OVER (", *over.parts(), ")"]
            kinds = kinds | {"window"}
        super().__init__(parts, _ATOM, name, kinds, _udfs(*inner) + tuple(u for u in udfs if u not in _udfs(*inner)))

    def _default_name(self):
        return self.function

    def _is_text(self):
        return self.function in _TEXT

    def output_name(self) -> Text:
        """Its alias, else the name of its first argument's first column, else the function's."""
        if self.name is not None:
            return self.name
        return next((r for a in self.args for r in a.refs()), self.function)

    def _with(self, **changes):
        now = dict(distinct=self._distinct, order=self._order, where=self._filter, over=self._over, nulls=self._nulls,
                   default_order=self._default_order, name=self.name, udfs=self.udfs, kinds=self.kinds)
        return Call(self.function, self.args, **{**now, **changes})

    def _copy(self):
        return self._with()

    def distinct(self) -> Call:
        """Of distinct values only."""
        return self._with(distinct=True)

    def filter(self, *conditions: Condition) -> Call:
        """Of the rows only where all conditions hold."""
        e = self._filter
        for c in conditions:
            e = condition(c) if e is None else e & condition(c)
        return self._with(where=e)

    def order_by(self, *by: Sorting, desc: bool | Sequence[bool] = False, nulls_first: bool | Sequence[bool] | None = None) -> Call:
        """In this order: of lists, string_agg, first."""
        return self._with(order=orders(by, desc, nulls_first))

    def ignore_nulls(self) -> Call:
        """Of first, last, lag, lead, nth: pass over NULLs."""
        return self._with(nulls="IGNORE")

    def over(self, partition_by: Window | Columns | None = None, order_by: Sorting | None = None, *,  # type: ignore[override]
             desc: bool | Sequence[bool] = False,
             nulls_first: bool | Sequence[bool] | None = None, rows: Frame | None = None, range: Frame | None = None,
             groups: Frame | None = None) -> Call:
        """In a window. partition_by, order_by: columns or expressions; or a Window as the only argument.
        rows, range, groups: the frame, a pair (start, end): None is unbounded, 0 the current row, -2 two before, 2 two after."""
        if isinstance(partition_by, Window):
            w = partition_by
        else:
            w = Window(partition=[column(c) for c in flatten(partition_by)], order=orders(order_by, desc, nulls_first),
                       frame=frame_sql(rows=rows, range=range, groups=groups))
        if not w.order and self._default_order is not None:
            w = Window(w.partition, [Order(self._default_order)], w.frame)
        return self._with(over=w)


def call(name: Text, *args: Any, udfs: tuple = (), kinds: frozenset = frozenset(), **named: Value) -> Call:
    """Any function of the engine by its name: arguments that are not expressions are values; named ones become name := value."""
    exprs = [to_expr(a) for a in args]
    for key, value in named.items():
        e = to_expr(value)
        exprs.append(Expr((f"{quote(key)} := ", *e.parts), _ATOM, None, e.kinds, e.udfs))
    return Call(name, exprs, udfs=udfs, kinds=kinds)


def col(name: Text) -> Expr:
    """A column by its name, exactly as it is (a dot is part of the name; fields: col('a').struct.get('b')). '*': all columns."""
    if not isinstance(name, str) or not name:
        raise invalid(f"a column's name must be a string that isn't empty, not {name!r}")
    return Expr(("*",), _ATOM) if name == "*" else Expr((Ref(name),))


def lit(value: Value) -> Expr:
    """A constant: None, bool, numbers, str, bytes, Decimal, dates and times, UUID, lists, dicts (structs; maps if the keys aren't strings),
    scalars of numpy, pandas and pyarrow."""
    if isinstance(value, Expr):
        return value
    text = literal.literal(value)
    return Expr((text,), _UNARY if text.startswith("-") else _ATOM, text=isinstance(value, str))


to_expr = lit


def column(value):
    """An expression for what names a column: a string is a name."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return col(value)
    raise invalid(f"expected a column's name or an expression, not {value!r}")


class SqlExpr(Expr):
    """An expression given as SQL text: its column names are not known here."""

    __slots__ = ("source",)

    def __init__(self, source, name=None):
        super().__init__((source + "\n" if "--" in source else source,), -1, name, frozenset({"sql"}))
        self.source = source

    def _default_name(self):
        return self.source

    def _copy(self):
        return SqlExpr(self.source, self.name)


def sql_expr(text: Text) -> Expr:
    """An expression written in SQL: sql_expr("a + 1 AS b"). Its columns are checked when the query is planned."""
    import re
    text = literal.check_text(text, "SQL text").strip().rstrip(";").strip()
    if not text:
        raise invalid("an expression in SQL can't be empty")
    m = re.fullmatch(r'(.*\S)\s+as\s+(?:"((?:[^"]|"")+)"|([A-Za-z_]\w*))', text, re.I | re.S)
    if m:
        return SqlExpr(m[1], (m[2] or "").replace('""', '"') or m[3])
    return SqlExpr(text)


def condition(value):
    """An expression for what is true or false: a string is SQL text."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return sql_expr(value)
    if isinstance(value, bool):
        return lit(value)
    raise invalid(f"expected a condition, an expression or SQL text, not {value!r}")


_MISSING = object()


class Case(Expr):
    """CASE: NULL where no condition holds; otherwise() says something else."""

    __slots__ = ("branches", "pending")

    def __init__(self, branches, pending=None, default=None):
        self.branches, self.pending = branches, pending
        inner = [e for b in branches for e in b] + ([default] if default is not None else [])
        parts = ["CASE"]
        for c, v in branches:
            parts += [" WHEN ", *c.parts, " THEN ", *v.parts]
        if default is not None:
            parts += [" ELSE ", *default.parts]
        super().__init__([*parts, " END"], _ATOM, None, _kinds(*inner), _udfs(*inner))

    def _copy(self):
        if self.pending is not None:
            raise invalid("when(…) has no value yet: when(condition, value), or when(condition).then(value)")
        return Expr(self.parts, self.strength, self.name, self.kinds, self.udfs, self.text)

    def when(self, condition_: Condition, value: Value = _MISSING) -> Case:
        """Else, where this holds: value."""
        c = condition(condition_)
        return Case(self.branches, c) if value is _MISSING else Case([*self.branches, (c, to_expr(value))])

    def then(self, value: Value) -> Case:
        """The value where the condition before holds."""
        if self.pending is None:
            raise invalid("then() comes after when(condition)")
        return Case([*self.branches, (self.pending, to_expr(value))])

    def otherwise(self, value: Value) -> Expr:
        """The value where no condition holds."""
        if self.pending is not None:
            raise invalid("when(…) has no value yet: when(condition, value), or when(condition).then(value)")
        e = Case(self.branches, None, to_expr(value))
        return Expr(e.parts, e.strength, None, e.kinds, e.udfs)


def when(condition_: Condition, value: Value = _MISSING) -> Case:
    """when(c, v).when(c2, v2).otherwise(v3), or when(c).then(v)…: strings are values; write col('a') for columns."""
    return Case([], None).when(condition_, value)


def coalesce(*exprs: ColumnLike) -> Expr:
    """The first that is not NULL; strings name columns."""
    return call("coalesce", *(column(e) if isinstance(e, str) else e for e in exprs))


__all__ = ["Call", "Expr", "UNBOUNDED", "Window", "call", "coalesce", "col", "lit", "sql_expr", "when"]
