# SPDX-License-Identifier: Apache-2.0
"""DataFrames: queries that are built step by step, and run when their rows are asked for. df.sql() is the query."""
from __future__ import annotations

from brant import display, expr, foreign, literal
from brant.actions import Actions
from brant.expr import Expr, call, col, column, condition, flatten, lit, orders
from brant.literal import quote
from brant.plan import Column, Node, Raw, Select, check, check_unique, find, invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brant._types import Aggregates, Any, Callable, ColumnLike, Columns, Condition, Mapping, Sequence, Sorting, Value
    from brant.display import Schema
    from brant.grouped import GroupedDataFrame
    from brant.session import Session


class DataFrame(Actions):
    """Rows that are not there yet: a query over a session. Every method gives a new DataFrame; nothing runs before show, collect, to_…,
    iter_…, write_…, count_rows. Columns are strings or expressions (brant.col); a string given to where() is SQL text."""

    def __init__(self, data: Any, session: Session | None = None) -> None:
        """Of what holds a table in Python: a dict of columns, a list of dicts, pandas, polars, Arrow (see brant.from_pydict and the like)."""
        if not isinstance(data, Node):
            from brant.io import from_any
            data = from_any(data, session=session)._node
        self._node, self._own_session, self._table = data, session, None

    if not TYPE_CHECKING:
        def __getattr__(self, name):
            raise foreign.missing("DataFrame", name)

    def __setitem__(self, name, value):
        raise TypeError(f"a DataFrame doesn't change: df = df.with_column({name!r}, …)")

    def __reduce__(self):
        """The query travels, its session doesn't: where it's unpickled, it runs in the default one."""
        return DataFrame, (self._node,)

    def __copy__(self):
        out = self._new(self._node)
        out._table = self._table
        return out

    def __deepcopy__(self, memo):
        return self.__copy__()  # nothing in it changes

    # ---- levels

    def _new(self, node):
        return DataFrame(node, self._own_session)

    def _level(self, *closed):
        """A level to add a clause to: the last one, if it has none of the clauses `closed`, else one around it."""
        n = self._node
        if isinstance(n, Select) and not n.sealed and not any(_has(n, c) for c in closed):
            return n.copy()
        return Select([n])

    def _names(self):
        return self._node.names(self.session)

    def _resolve(self, items):
        """Expressions from what select() and the like take, with their names checked."""
        out = []
        for item in flatten(items):
            e = column(item)
            if e.parts == ("*",) and e.name is None and not isinstance(e, expr.Call):
                out += [col(n) for n in self._names()]
            else:
                out.append(e)
        self._check(*out)
        return out

    def _check(self, *exprs):
        wanted = [r for e in exprs for r in e.refs()]
        if wanted:
            check(wanted, self._names())

    def _columns(self, exprs):
        """Columns of a level over this frame, from expressions."""
        names = self._names()
        out = []
        for e in exprs:
            source = find(e.refs()[0], names) if e.is_column() else None
            out.append(Column(e.name or source, source=source) if source else Column(e.output_name(), e.sql()))
        check_unique([c.name for c in out])
        return out

    def _with(self, level, columns, exprs):
        level.columns = columns
        level.udfs = (*level.udfs, *(u for e in exprs for u in e.udfs))
        level.unnests = level.unnests or any("unnest" in e.kinds for e in exprs)
        return self._new(level)

    # ---- columns

    def select(self, *columns: Columns, **named: Value) -> DataFrame:
        """These columns and expressions, in this order: df.select('a', col('b') + 1, c=col('d').str.lower()). '*' is all columns."""
        exprs = self._resolve(columns) + [_value(e).alias(n) for n, e in named.items()]
        if not exprs:
            raise invalid("select() needs a column at least")
        self._check(*exprs)
        out = self._columns(exprs)
        plain = all(c.source is not None for c in out)
        unchanged = all(c.source == c.name for c in out)
        closed = ["columns", "distinct", "group", "unnest"] + ([] if unchanged else ["order", "qualify"]) + ([] if plain else ["cut"])
        return self._with(self._level(*closed), out, exprs)

    def with_columns(self, *columns: Columns | Mapping[str, Value], **named: Value) -> DataFrame:
        """All columns, and these: expressions with names, a dict, or keywords. A column that is there is replaced in its place."""
        exprs = []
        for c in flatten(columns):
            exprs += [_value(e).alias(n) for n, e in c.items()] if isinstance(c, dict) else [column(c)]
        exprs += [_value(e).alias(n) for n, e in named.items()]
        if not exprs:
            return self
        self._check(*exprs)
        names = self._names()
        new = self._columns(exprs)
        level = self._merging_level(exprs, new)
        base = level.columns if level is not None else [Column(n, source=n) for n in names]
        level = level if level is not None else self._level("columns", "distinct", "group", "order", "qualify", "cut", "unnest")
        changed = {c.name.lower(): c for c in new}
        out = [_renamed(changed.pop(b.name.lower()), b.name) if b.name.lower() in changed else b for b in base] + list(changed.values())
        return self._with(level, out, exprs)

    def _merging_level(self, exprs, new):
        """The last level, when the new columns mean the same in it: they read only what it does not change."""
        n = self._node
        if not isinstance(n, Select) or n.columns is None or any(
                _has(n, c) for c in ("distinct", "group", "order", "qualify", "cut", "unnest", "sealed")):
            return None
        same = {c.name.lower() for c in n.columns if c.source == c.name}
        if any(e.kinds & {"unnest", "sql", "window"} or any(r.lower() not in same for r in e.refs()) for e in exprs):
            return None
        hidden = {x.lower() for x in n.below(self.session)} - same
        return None if hidden & {c.name.lower() for c in new} else n.copy()

    def with_column(self, name: str, value: Value) -> DataFrame:
        """All columns, and one more (or another in its place)."""
        return self.with_columns({name: value})

    def exclude(self, *names: Columns) -> DataFrame:
        """All columns but these."""
        gone = {c.lower() for c in self._plain(names)}
        left = [n for n in self._names() if n.lower() not in gone]
        if not left:
            raise invalid("no column would be left")
        return self.select(*map(col, left))

    drop = exclude

    def _plain(self, names):
        """Names of columns, as they are written in this frame."""
        out = []
        for item in flatten(names):
            e = column(item)
            if not e.is_column():
                raise invalid(f"expected a column's name, not {e.sql()}")
            check(e.refs(), self._names())
            out.append(find(e.refs()[0], self._names()))
        return out

    def rename(self, mapping: Mapping[str, str] | Callable[[str], str] | None = None, **named: str) -> DataFrame:
        """Other names: df.rename({'a': 'b'}) or df.rename(a='b'); or a function of the name."""
        names = self._names()
        if callable(mapping):
            mapping = {n: mapping(n) for n in names}
        mapping = {**(mapping or {}), **named}
        check(mapping, names)
        new = {find(old, names): name for old, name in mapping.items()}
        return self.select(*(col(n).alias(new[n]) if n in new and new[n] != n else col(n) for n in names))

    def with_column_renamed(self, existing: str, new: str) -> DataFrame:
        """One column under another name."""
        return self.rename({existing: new})

    def with_columns_renamed(self, mapping: Mapping[str, str]) -> DataFrame:
        """Columns under other names: {old: new}."""
        return self.rename(mapping)

    def __getitem__(self, item: Any) -> Any:
        """df['a'] is a column, df['a', 'b'] or df[['a', 'b']] some columns, df[10:20] rows, df[col('a') > 1] the rows where it holds."""
        if isinstance(item, str):
            check([item], self._names())
            return col(find(item, self._names()))
        if isinstance(item, slice):
            return self._slice(item)
        if isinstance(item, Expr):
            return self.where(item)
        if isinstance(item, int) and not isinstance(item, bool):
            names = self._names()
            if not -len(names) <= item < len(names):
                raise invalid(f"there is no column {item}: there are {len(names)}")
            return col(names[item])
        return self.select(*(self[i] for i in item))

    def _slice(self, s):
        start, stop = s.start or 0, s.stop
        if s.step not in (None, 1) or start < 0 or (stop is not None and stop < 0):
            raise invalid("rows are cut by df[start:stop], with places counted from 0: a negative place or a step is not known before it runs")
        return (self.offset(start) if start else self) if stop is None else self.offset(start).limit(max(0, stop - start)) if start else self.limit(stop)

    # ---- rows

    def where(self, *predicates: Condition | Sequence[Condition], **equal: Value) -> DataFrame:
        """The rows where all of these hold: expressions, SQL text, or column=value."""
        conditions = [condition(p) for p in flatten(predicates)] + [col(n) == v for n, v in equal.items()]
        self._check(*conditions)
        if not conditions:
            return self
        window = any("window" in c.kinds for c in conditions)
        level = self._level("columns", "distinct", "group", "cut", "qualify", "unnest", *(["order"] if window else []))
        (level.qualify if window else level.where).extend((c.sql(), c.strength > 0) for c in conditions)
        level.udfs = (*level.udfs, *(u for c in conditions for u in c.udfs))
        return self._new(level)

    filter = where

    def drop_null(self, *columns: Columns) -> DataFrame:
        """The rows without NULL in these columns (none given: in any)."""
        return self.where(*(col(n).not_null() for n in (self._plain(columns) or self._names())))

    drop_nulls = dropna = drop_null

    def drop_nan(self, *columns: Columns) -> DataFrame:
        """The rows without NaN in these columns (none given: in any of floats)."""
        names = self._plain(columns) or [n for n, t in self.schema.items() if t in ("FLOAT", "DOUBLE")]
        return self.where(*(col(n).is_null() | col(n).not_nan() for n in names))

    def fill_null(self, value: Any, *columns: Columns) -> DataFrame:
        """NULLs of these columns (none given: all that the value fits) replaced."""
        names = self._plain(columns)
        if not names:
            kinds = (bool, ("BOOLEAN",)), (int, _NUMBERS), (float, _NUMBERS), (str, ("VARCHAR",))
            fits = next((types for kind, types in kinds if isinstance(value, kind)), None)
            names = [n for n, t in self.schema.items() if fits is None or t.startswith(fits)]
        return self.with_columns({n: col(n).fill_null(value) for n in names}) if names else self

    def distinct(self, *on: Columns) -> DataFrame:
        """Each row once; with columns, one row for each of their values (some row, unless sorted)."""
        keys = self._resolve(on)
        if not keys:
            level = self._level("distinct", "cut", "order", "group", "unnest")
            level.distinct = ""
        else:
            level = Select([self._node])
            level.distinct = f"ON ({', '.join(k.sql() for k in keys)}) "
            level.udfs = tuple(u for k in keys for u in k.udfs)
        return self._new(level)

    unique = drop_duplicates = distinct

    def sort(self, *by: Sorting, desc: bool | Sequence[bool] = False, nulls_first: bool | Sequence[bool] | None = None,
             **others: Any) -> DataFrame:
        """In this order. desc, nulls_first: one for all keys, or a list with one for each; or col('a').desc(). NULLs are last.
        descending= is desc, ascending= its contrary."""
        desc = _descending(desc, others)
        if len(by) > 1 and isinstance(by[-1], bool):
            raise invalid("sort('a', True): write desc=True")
        keys = orders(by, desc, nulls_first)
        if not keys:
            raise invalid("sort() needs a column at least")
        self._check(*(k.expr for k in keys))
        names_only = all(k.expr.is_column() for k in keys)
        simple = isinstance(self._node, Select) and self._node.is_plain()
        level = self._level("distinct", "cut", "qualify", "unnest", *([] if simple or names_only else ["columns", "group"]))
        level.order = ["".join(p if isinstance(p, str) else quote(p.name) for p in k.parts) for k in keys]
        level.udfs = (*level.udfs, *(u for k in keys for u in k.expr.udfs))
        return self._new(level)

    order_by = sort

    def limit(self, n: int) -> DataFrame:
        """The first n rows."""
        level = self._cut(n, "limit")
        level.limit = n if level.limit is None else min(n, level.limit)
        return self._new(level)

    def head(self, n: int = 5) -> DataFrame:
        """The first n rows."""
        return self.limit(n)

    def offset(self, n: int) -> DataFrame:
        """Without the first n rows."""
        level = self._cut(n, "offset")
        if level.limit is not None:
            level.limit = max(0, level.limit - n)
        level.offset = (level.offset or 0) + n
        return self._new(level)

    def _cut(self, n, what):
        if isinstance(n, bool) or not hasattr(n, "__index__") or n.__index__() < 0 or n.__index__() >= 2**63:
            raise invalid(f"{what}() takes a number of rows, 0 or more, not {n!r}")
        return self._node.copy() if isinstance(self._node, Select) else Select([self._node])

    def sample(self, fraction: float | None = None, size: int | None = None, with_replacement: bool = False, seed: int | None = None) -> DataFrame:
        """Some rows by chance: a fraction (0 to 1) of them, each by itself, or a number of them."""
        if with_replacement:
            raise invalid("samples with replacement are not supported: join a range of random numbers with row numbers instead")
        if (fraction is None) == (size is None):
            raise invalid("sample() takes either fraction or size")
        if fraction is not None:
            if not 0 <= fraction <= 1:
                raise invalid(f"fraction is between 0 and 1, not {fraction!r}")
            text = f"bernoulli({float(fraction) * 100!r} PERCENT)"
        else:
            text = f"reservoir({int(size or 0)} ROWS)"
        return self._new(_sealed(Select([self._node, f" TABLESAMPLE {text}" + ("" if seed is None else f" REPEATABLE ({int(seed)})")])))

    def shuffle(self, seed: int | None = None) -> DataFrame:
        """In random order. With a seed: in an order that depends on the seed and the rows alone."""
        level = self._level("distinct", "cut", "group", "qualify", "unnest", "columns")
        level.order = ["random()"] if seed is None else [f"hash({', '.join([literal.literal(int(seed)), *map(quote, self._names())])})"]
        return self._new(level)

    # ---- groups

    def group_by(self, *keys: Columns, **named: Value) -> GroupedDataFrame:
        """For agg(): a GroupedDataFrame."""
        from brant.grouped import GroupedDataFrame
        exprs = self._resolve(keys) + [_value(e).alias(n) for n, e in named.items()]
        self._check(*exprs)
        if not exprs:
            raise invalid("group_by() needs a column at least; over all rows: df.agg(…)")
        return GroupedDataFrame(self, exprs)

    groupby = group_by

    def agg(self, *aggregates: Aggregates, **named: Value) -> DataFrame:
        """One row of aggregates over all rows: df.agg(col('a').sum(), n=brant.functions.count()), df.agg({'a': ['min', 'max']})."""
        from brant.grouped import aggregate
        return aggregate(self, [], aggregates, named)

    def _aggregate_all(self, method, columns, *args):
        from brant.grouped import shortcut
        return shortcut(self, [], method, columns, *args)

    def sum(self, *columns: Columns) -> DataFrame:
        """The sums of these columns (none given: of all numbers)."""
        return self._aggregate_all("sum", columns)

    def mean(self, *columns: Columns) -> DataFrame:
        """The means of these columns (none given: of all numbers)."""
        return self._aggregate_all("mean", columns)

    def min(self, *columns: Columns) -> DataFrame:
        """The least values of these columns (none given: of all)."""
        return self._aggregate_all("min", columns)

    def max(self, *columns: Columns) -> DataFrame:
        """The largest values of these columns (none given: of all)."""
        return self._aggregate_all("max", columns)

    def stddev(self, *columns: Columns, ddof: int = 1) -> DataFrame:
        """The standard deviations (none given: of all numbers); ddof=0: of the whole population."""
        return self._aggregate_all("stddev", columns, ddof)

    def var(self, *columns: Columns, ddof: int = 1) -> DataFrame:
        """The variances (none given: of all numbers); ddof=0: of the whole population."""
        return self._aggregate_all("var", columns, ddof)

    def median(self, *columns: Columns) -> DataFrame:
        """The medians of these columns (none given: of all numbers)."""
        return self._aggregate_all("median", columns)

    def skew(self, *columns: Columns) -> DataFrame:
        """The skewness of these columns (none given: of all numbers)."""
        return self._aggregate_all("skew", columns)

    def product(self, *columns: Columns) -> DataFrame:
        """The products of these columns (none given: of all numbers)."""
        return self._aggregate_all("product", columns)

    def any_value(self, *columns: Columns) -> DataFrame:
        """Some value of each of these columns that is not NULL (none given: of all)."""
        return self._aggregate_all("any_value", columns)

    def count_distinct(self, *columns: Columns) -> DataFrame:
        """How many different values these columns have (none given: all), NULL not counted."""
        return self._aggregate_all("count_distinct", columns)

    def count(self, *columns: Columns) -> DataFrame:
        """How many values of these columns are not NULL, as a frame (none given: how many rows). A number: count_rows()."""
        return self._aggregate_all("count", columns)

    def agg_list(self, *columns: Columns) -> DataFrame:
        """All values of these columns (none given: of all) as lists."""
        return self._aggregate_all("agg_list", columns)

    def agg_set(self, *columns: Columns) -> DataFrame:
        """The different values of these columns (none given: of all) as lists, without NULL."""
        return self._aggregate_all("agg_set", columns)

    def agg_concat(self, *columns: Columns, delimiter: str = "") -> DataFrame:
        """All strings of these columns (none given: of all) one after the other."""
        return self._aggregate_all("agg_concat", columns, delimiter)

    def pivot(self, group_by: Columns, pivot_col: ColumnLike, value_col: ColumnLike, agg_fn: str = "sum",
              names: Sequence[Any] | None = None) -> DataFrame:
        """A column for each value of pivot_col: agg_fn of value_col. names: these values; else they are fetched first, by a query."""
        from brant.grouped import pivot
        return pivot(self, group_by, pivot_col, value_col, agg_fn, names)

    def unpivot(self, ids: Columns = (), values: Columns = (), variable_name: str = "variable", value_name: str = "value") -> DataFrame:
        """A row for each value: ids stay, the columns `values` (none given: all others) become rows of their name and value."""
        keys, names = self._plain(ids), self._names()
        melted = self._plain(values) or [n for n in names if n not in keys]
        if not melted:
            raise invalid("there are no columns to unpivot")
        check_unique([*keys, variable_name, value_name])
        text = (f"\0UNPIVOT INCLUDE NULLS ({quote(value_name)} FOR {quote(variable_name)} IN ({', '.join(map(quote, melted))}))")
        below = self.select(*keys, *melted)._node
        return self._new(Raw(["SELECT *\0FROM ", below, text], [*keys, variable_name, value_name]))

    melt = unpivot

    def explode(self, *columns: Columns, index_column: str | None = None, ignore_empty_and_null: bool = False) -> DataFrame:
        """A row for each element of these lists (side by side, if more than one). A list that is empty or NULL gives one row of NULL,
        unless ignore_empty_and_null. index_column: the element's place, from 0, under this name."""
        names = self._plain(columns)
        if not names:
            raise invalid("explode() needs a column at least")
        new = {}
        for n in names:
            lists = col(n) if ignore_empty_and_null else expr.when(call("len", col(n)) > 0, col(n)).otherwise([None])
            new[n] = lists.explode()
        if index_column is not None:
            lengths = [call("len", col(n)) for n in names]
            longest = lengths[0] if len(names) == 1 else call("greatest", *lengths)
            places = call("range", longest)
            new[index_column] = (places if ignore_empty_and_null else expr.when(longest > 0, places).otherwise([None])).explode()
        return self.with_columns(new)

    # ---- other frames

    def join(self, other: DataFrame, on: Columns | None = None, how: str = "inner", *, left_on: Columns | None = None,
             right_on: Columns | None = None, prefix: str | None = None, suffix: str | None = None, null_equals_null: bool = False,
             strategy: str | None = None) -> DataFrame:
        """Rows of both. how: inner, left, right, full (outer), semi, anti, cross. on: columns that both have, which the result has once;
        left_on, right_on: columns or expressions of either. Other columns of the right whose names are taken get prefix and suffix
        (none given: the suffix _right). strategy='broadcast' sends all of the right (of a right join: the left) to each task, see
        brant.broadcast; 'hash' and 'sort_merge' are left to the planner, which knows sizes."""
        from brant import joins
        return joins.join(self, other, on, how, left_on, right_on, prefix, suffix, null_equals_null, strategy)

    def join_asof(self, other: DataFrame, *, on: Columns | None = None, left_on: Columns | None = None, right_on: Columns | None = None,
                  by: Columns | None = None, left_by: Columns | None = None, right_by: Columns | None = None, strategy: str | None = "backward",
                  allow_exact_matches: bool = True, how: str = "left", prefix: str | None = None, suffix: str | None = None) -> DataFrame:
        """With each row of the left, the nearest of the right by `on`: the last one not after it (backward), the first one not before
        it (forward), or the nearer one of these (nearest), among those with equal `by`."""
        from brant import joins
        return joins.join_asof(self, other, on, left_on, right_on, by, left_by, right_by, strategy, allow_exact_matches, how, prefix, suffix)

    def cross_join(self, other: DataFrame, *, prefix: str | None = None, suffix: str | None = None) -> DataFrame:
        """Each row of this with each of the other."""
        return self.join(other, how="cross", prefix=prefix, suffix=suffix)

    def _set(self, other, word, by_name=False):
        other = _frame_of(other, word, self._own_session)
        mine, theirs = self._names(), other._names()
        if not by_name and len(mine) != len(theirs):
            raise invalid(f"{word}: the frames have {len(mine)} and {len(theirs)} columns")
        columns = mine + [n for n in theirs if find(n, mine) is None] if by_name else mine
        parts = ["FROM ", self._node, f"\0{word}{' BY NAME' if by_name else ''}\0FROM ", other._node]
        return DataFrame(Raw(parts, columns), _common_session(self, other))

    def concat(self, other: DataFrame) -> DataFrame:
        """The rows of this, then those of the other, which has the same columns."""
        other = _frame_of(other, "concat", self._own_session)
        mine, theirs = self._names(), other._names()
        if [n.lower() for n in mine] != [n.lower() for n in theirs]:
            raise invalid(f"concat: the columns differ: {', '.join(mine)} and {', '.join(theirs)}; union_all_by_name fills up with NULL")
        return self._set(other, "UNION ALL")

    def union(self, other: DataFrame) -> DataFrame:
        """Rows of both, each once; columns by position."""
        return self._set(other, "UNION")

    def union_all(self, other: DataFrame) -> DataFrame:
        """Rows of both; columns by position."""
        return self._set(other, "UNION ALL")

    def union_by_name(self, other: DataFrame) -> DataFrame:
        """Rows of both, each once; columns by name, NULL where one has none."""
        return self._set(other, "UNION", True)

    def union_all_by_name(self, other: DataFrame) -> DataFrame:
        """Rows of both; columns by name, NULL where one has none."""
        return self._set(other, "UNION ALL", True)

    def intersect(self, other: DataFrame) -> DataFrame:
        """Rows that both have, each once; columns by position."""
        return self._set(other, "INTERSECT")

    def intersect_all(self, other: DataFrame) -> DataFrame:
        """Rows that both have, as often as in the one that has fewer."""
        return self._set(other, "INTERSECT ALL")

    def except_distinct(self, other: DataFrame) -> DataFrame:
        """Rows of this that the other has not, each once."""
        return self._set(other, "EXCEPT")

    except_ = except_distinct

    def except_all(self, other: DataFrame) -> DataFrame:
        """Rows of this, less as many equal ones as the other has."""
        return self._set(other, "EXCEPT ALL")

    # ---- partitions

    def _function(self, name, *arguments, udfs=()):
        below = self._node if _in_parentheses(self._node) else Raw(["SELECT *\0FROM ", self._node])
        parts = [f"SELECT *\0FROM {name}(", below, "".join(f", {a}" for a in arguments) + ")"]
        return self._new(Raw(parts, getattr(self._node, "columns", None) and self._names(), udfs))

    def repartition(self, n: int, *by: Columns) -> DataFrame:
        """In n partitions: rows with equal `by` together, or, without, spread evenly (docs/nodes.md)."""
        if isinstance(n, (str, Expr, list)):
            raise invalid("repartition() takes the number of partitions first, 1 or more: repartition(8, 'k')")
        keys = self._resolve(by)
        return self._function("repartition", _count(n, "repartition"), *(k.sql() for k in keys), udfs=tuple(u for k in keys for u in k.udfs))

    def into_partitions(self, n: int) -> DataFrame:
        """In n partitions, by splitting or putting together those that are there."""
        return self._function("into_partitions", _count(n, "into_partitions"))

    def into_batches(self, rows: int) -> DataFrame:
        """In batches of so many rows for what comes next."""
        return self._function("into_batches", _count(rows, "into_batches"))

    def with_row_id(self, name: str = "id") -> DataFrame:
        """A first column with a number for each row: unique, not dense; see functions.monotonically_increasing_id."""
        names = self._names()
        if find(name, names) is not None:
            raise invalid(f"there is a column {quote(name)} already: with_row_id('another name')")
        return self.select(call("monotonically_increasing_id").alias(name), *map(col, names))

    def with_row_number(self, name: str = "row", *, order_by: Sorting, partition_by: Columns | None = None) -> DataFrame:
        """A first column with 1, 2, 3 … in this order."""
        number = call("row_number").over(partition_by=partition_by, order_by=order_by)
        return self.select(number.alias(name), *map(col, self._names()))

    # ---- about columns

    def describe(self) -> DataFrame:
        """A frame with the name and the type of each column."""
        return self._new(Raw(["SELECT column_name, column_type AS type\0FROM (DESCRIBE FROM ", self._node, ")"], ["column_name", "type"]))

    def summarize(self) -> DataFrame:
        """A frame with a row for each column: least, greatest, mean, quartiles, counts of values and NULLs: the columns of DuckDB's
        SUMMARIZE. Mean and deviation are those of the finite numbers (SUMMARIZE fails where there are others)."""
        rows = ",\0".join(_summary(n, t) for n, t in self._node.schema(self.session))
        return self._new(Raw([f"SELECT s.*\0FROM (SELECT unnest([\0{rows}]) AS s FROM ", self._node, ")"], list(_SUMMARY)))

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._names())

    column_names = columns

    @property
    def schema(self) -> Schema:
        """Names and types: a dict of DuckDB's names of types. Planned, not run."""
        return display.Schema(self._node.schema(self.session))

    @property
    def dtypes(self) -> list[str]:
        """The types of the columns, by DuckDB's names."""
        return list(self.schema.values())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and find(name, self._names()) is not None

    def pipe(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """function(self, …): for chains."""
        return function(self, *args, **kwargs)

    def transform(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> DataFrame:
        """As pipe; the function gives a DataFrame."""
        out = function(self, *args, **kwargs)
        if not isinstance(out, DataFrame):
            raise invalid(f"transform: the function gave a {type(out).__name__}, not a DataFrame")
        return out


_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE",
            "DECIMAL")


_TEMPORAL = ("DATE", "TIME")  # and what begins so
_SUMMARY = {"column_name": "VARCHAR", "column_type": "VARCHAR", "min": "VARCHAR", "max": "VARCHAR", "approx_unique": "BIGINT", "avg": "VARCHAR",
            "std": "VARCHAR", "q25": "VARCHAR", "q50": "VARCHAR", "q75": "VARCHAR", "count": "BIGINT", "null_percentage": "DECIMAL(9,2)"}


def _summary(name, kind):
    """What summarize() tells of a column, as a struct of aggregates."""
    c = quote(name)
    numeric = kind.startswith(_NUMBERS) and not kind.endswith("]")
    ranked = numeric or kind.startswith(_TEMPORAL) and not kind.endswith("]")
    finite = f" FILTER (isfinite({c}))" if kind in ("FLOAT", "DOUBLE") else ""
    values = {"column_name": literal.string(name), "column_type": literal.string(kind), "min": f"min({c})", "max": f"max({c})",
              "approx_unique": f"approx_count_distinct({c})", "count": "count(*)",
              "null_percentage": f"(1 - count({c}) / nullif(count(*), 0)) * 100"}
    if ranked:
        values.update({f"q{q}": f"approx_quantile({c}, 0.{q})" for q in (25, 50, 75)}, avg=f"avg({c}){finite}")
    if numeric:
        values["std"] = f"stddev({c}){finite}"
    return "{" + ", ".join(f"{n}: CAST({values.get(n, 'NULL')} AS {t})" for n, t in _SUMMARY.items()) + "}"


def _frame_of(other, what, session):
    from brant.io import frame_of
    return frame_of(other, what, session)


def _has(level, clause):
    if clause == "cut":
        return level.is_cut()
    if clause == "columns":
        return level.columns is not None
    if clause == "unnest":
        return level.unnests
    return getattr(level, clause) not in (None, [], False)


def _renamed(c, name):
    return c if c.name == name else Column(name, None if c.source else c.text, c.source)


def _value(value):
    """An expression for a named column: a string is a column's name, as everywhere in select(); other values are constants."""
    return value if isinstance(value, Expr) else column(value) if isinstance(value, str) else lit(value)


def _sealed(level):
    level.sealed = True
    return level


def _descending(desc, others):
    """The words of Polars and Spark for desc."""
    for name, value in others.items():
        if name not in ("descending", "ascending"):
            raise TypeError(f"sort() has no option {name!r}: desc, nulls_first")
        flip = name == "ascending"
        desc = [bool(v) != flip for v in value] if isinstance(value, (list, tuple)) else bool(value) != flip
    return desc


def _in_parentheses(node):
    return isinstance(node, Raw) or isinstance(node, Select) and not node.is_bare()


def _count(n, what):
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise invalid(f"{what}() takes a number, 1 or more, not {n!r}")
    return n


def _common_session(a, b):
    if a._own_session is not b._own_session and a.session is not b.session:
        raise invalid("the two frames belong to different sessions")
    return a._own_session or b._own_session
