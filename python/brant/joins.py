# SPDX-License-Identifier: Apache-2.0
"""Joins of DataFrames, as SQL."""
from __future__ import annotations

from brant.expr import _COMPARE, column, flatten
from brant.literal import quote
from brant.plan import Column, Select, check, check_unique, find, invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brant.dataframe import DataFrame

_HOW = {"inner": "JOIN", "left": "LEFT JOIN", "leftouter": "LEFT JOIN", "left_outer": "LEFT JOIN", "right": "RIGHT JOIN", "rightouter": "RIGHT JOIN",
        "right_outer": "RIGHT JOIN", "outer": "FULL JOIN", "full": "FULL JOIN", "fullouter": "FULL JOIN", "full_outer": "FULL JOIN",
        "semi": "SEMI JOIN", "left_semi": "SEMI JOIN", "leftsemi": "SEMI JOIN", "anti": "ANTI JOIN", "left_anti": "ANTI JOIN", "leftanti": "ANTI JOIN",
        "cross": "CROSS JOIN"}
_STRATEGIES = (None, "hash", "sort_merge", "broadcast")


def _keys(left, right, on, left_on, right_on, what):
    """Pairs of expressions, and the names of those that both have under one name."""
    if on is not None and (left_on is not None or right_on is not None):
        raise invalid(f"{what}: either on, or left_on and right_on")
    if (left_on is None) != (right_on is None):
        raise invalid(f"{what}: left_on and right_on come together")
    a = [column(c) for c in flatten(on if on is not None else left_on)]
    if on is not None and any(e.strength <= _COMPARE and "sql" not in e.kinds for e in a):
        raise invalid(f"{what}: on=… names columns that both have, not a condition: left_on='a', right_on='b' for columns of two names; for other "
                      "conditions cross_join(…).where(…)")
    b = [column(c) for c in flatten(on if on is not None else right_on)]
    if len(a) != len(b):
        raise invalid(f"{what}: {len(a)} keys on the left, {len(b)} on the right")
    check([r for e in a for r in e.refs()], left._names(), " on the left")
    check([r for e in b for r in e.refs()], right._names(), " on the right")
    return list(zip(a, b))


def _output(left, right, pairs, kind, prefix, suffix):
    """The columns of the result: all of the left, those of the right but keys of the same name."""
    names, theirs = left._names(), right._names()
    merged = {find(x.refs()[0], names): find(y.refs()[0], theirs) for x, y in pairs
              if x.is_column() and y.is_column() and x.refs()[0].lower() == y.refs()[0].lower()}
    columns, plain = [], True
    for n in names:
        if n in merged and kind in ("RIGHT JOIN", "FULL JOIN"):
            other = f"r.{quote(merged[n])}"
            columns.append(Column(n, other if kind == "RIGHT JOIN" else f"coalesce(l.{quote(n)}, {other})"))
            plain = False
        else:
            columns.append(Column(n, f"l.{quote(n)}"))
    taken = {n.lower() for n in names}
    rest = [n for n in theirs if n not in merged.values()]
    renamed = []
    for n in rest:
        new = n
        if n.lower() in taken:
            new = f"{prefix or ''}{n}{suffix or ''}" if prefix or suffix else f"{n}_right"
            renamed.append(f"{quote(n)} AS {quote(new)}")
        columns.append(Column(new, f"r.{quote(n)}"))
    check_unique([c.name for c in columns])
    text = []
    if plain:
        text.append("l.*")
    else:
        changed = [c for c in columns[:len(names)] if not c.text.startswith("l.")]
        text.append(f"l.* REPLACE ({', '.join(f'{c.text} AS {quote(c.name)}' for c in changed)})")
    if rest:
        gone = [quote(n) for n in merged.values()]
        text.append("r.*" + (f" EXCLUDE ({', '.join(gone)})" if gone else "") + (f" RENAME ({', '.join(renamed)})" if renamed else ""))
    return columns, ", ".join(text)


class Join(Select):
    """A level over two frames."""

    sealed = True
    shown = "*"

    def columns_text(self, names):
        return self.shown

    def copy(self):
        j = Join(self.source, self.input_names)
        j.__dict__.update(super().copy().__dict__)
        j.shown = self.shown
        return j


def _made(left, right, words, conditions, columns, shown, udfs):
    from brant.dataframe import DataFrame, _common_session
    on = f"\0ON {' AND '.join(conditions)}" if conditions else ""
    level = Join([left._node, " AS l", f"\0{words} ", right._node, f" AS r{on}"], left._names() if columns is None else None)
    level.columns, level.shown, level.udfs = columns, shown, tuple(udfs)
    return DataFrame(level, _common_session(left, right))


def join(left, right, on, how, left_on, right_on, prefix, suffix, null_equals_null, strategy):
    """See DataFrame.join."""
    from brant.io import frame_of
    right = frame_of(right, "join", left._own_session)
    kind = _HOW.get(how)
    if kind is None:
        if how == "asof":
            raise invalid("an asof join is df.join_asof(other, on=…, by=…)")
        raise invalid(f"how must be one of inner, left, right, full, semi, anti, cross, not {how!r}")
    if strategy not in _STRATEGIES:
        raise invalid(f"strategy must be hash, sort_merge or broadcast, not {strategy!r}")
    pairs = _keys(left, right, on, left_on, right_on, "join")
    if (kind == "CROSS JOIN") == bool(pairs):
        raise invalid("a cross join has no keys" if pairs else "join: give on=…, or left_on= and right_on=; how='cross' for all pairs")
    if strategy == "broadcast":
        if kind == "FULL JOIN":
            raise invalid("a full join broadcasts neither side: rows without a partner would come from every task")
        left, right = (broadcast(left), right) if kind == "RIGHT JOIN" else (left, broadcast(right))
    same = "IS NOT DISTINCT FROM" if null_equals_null else "="
    conditions = [f"{_side(a, 'l')} {same} {_side(b, 'r')}" for a, b in pairs]
    udfs = [u for p in pairs for e in p for u in e.udfs]
    if kind in ("SEMI JOIN", "ANTI JOIN"):
        return _made(left, right, kind, conditions, None, "*", udfs)
    columns, shown = _output(left, right, pairs, kind, prefix, suffix)
    return _made(left, right, kind, conditions, columns, shown, udfs)


def broadcast(df: DataFrame) -> DataFrame:
    """The frame, with the wish that a join sends all of it to every task of the other side instead of spreading both by their keys:
    orders.join(brant.broadcast(small), on="k"). Where that would be wrong (rows that an outer join keeps), the wish is passed over."""
    from brant.dataframe import DataFrame
    if not isinstance(df, DataFrame):
        raise invalid(f"broadcast: expected a DataFrame, not a {type(df).__name__}")
    return df._function("broadcast")


def _side(e, alias):
    text = e.sql(alias)
    return text if e.strength > 4 else f"({text})"


def join_asof(left, right, on, left_on, right_on, by, left_by, right_by, strategy, allow_exact_matches, how, prefix, suffix):
    """See DataFrame.join_asof."""
    from brant.io import frame_of
    right = frame_of(right, "join_asof", left._own_session)
    if strategy not in ("backward", "forward", "nearest"):
        raise invalid(f"strategy must be backward, forward or nearest, not {strategy!r}")
    if how not in ("left", "inner"):
        raise invalid(f"an asof join is left or inner, not {how!r}")
    near = _keys(left, right, on, left_on, right_on, "join_asof")
    if len(near) != 1:
        raise invalid("join_asof: `on` is one column, by which rows are near")
    equal = _keys(left, right, by, left_by, right_by, "join_asof by")
    if strategy == "nearest":
        return _nearest(left, right, near[0], equal, "=" if allow_exact_matches else "", how, prefix, suffix)
    op = (">" if strategy == "backward" else "<") + ("=" if allow_exact_matches else "")
    conditions = [f"{_side(a, 'l')} = {_side(b, 'r')}" for a, b in equal] + [f"{_side(near[0][0], 'l')} {op} {_side(near[0][1], 'r')}"]
    columns, shown = _output(left, right, equal + near, "LEFT JOIN", prefix, suffix)
    return _made(left, right, "ASOF LEFT JOIN" if how == "left" else "ASOF JOIN", conditions, columns, shown,
                 [u for p in near + equal for e in p for u in e.udfs])


def _nearest(left, right, near, equal, exact, how, prefix, suffix):
    """Two asof joins, and of each pair of partners the nearer one; the earlier one of two that are as near."""
    from brant.dataframe import DataFrame, _common_session
    at, before, after = _side(near[0], "l"), _side(near[1], "b"), _side(near[1], "f")
    pick = f"{after} IS NULL OR {at} - {before} <= {after} - {at}"
    columns, _ = _output(left, right, [*equal, near], "LEFT JOIN", prefix, suffix)
    first = len(left._names())
    columns[first:] = [Column(c.name, f"CASE WHEN {pick} THEN b.{c.text[2:]} ELSE f.{c.text[2:]} END") for c in columns[first:]]
    source = [left._node, " AS l"]
    for alias, op, other in (("b", ">", before), ("f", "<", after)):
        on = [f"{_side(a, 'l')} = {_side(b, alias)}" for a, b in equal] + [f"{at} {op}{exact} {other}"]
        source += ["\0ASOF LEFT JOIN ", right._node, f" AS {alias}\0ON {' AND '.join(on)}"]
    level = Join(source, None)
    level.columns, level.shown = columns, ", ".join(["l.*", *map(str, columns[first:])])
    level.udfs = tuple(u for p in [near, *equal] for e in p for u in e.udfs)
    if how == "inner":
        level.where = [(f"{before} IS NOT NULL OR {after} IS NOT NULL", False)]
    return DataFrame(level, _common_session(left, right))
