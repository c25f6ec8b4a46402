# SPDX-License-Identifier: Apache-2.0
"""Random well-typed queries from a seed: `query(seed)` gives the text, whether its order is total, and what its columns are.

Every query has one answer, up to the last digits of floats: an ORDER BY under a LIMIT, inside an aggregate or a window orders by enough
columns; what depends on the order of additions is marked `approx` and is only ever a result. Values that are equal without looking alike
(-0.0, intervals of 30 days) are compared, grouped and joined, but never turned into text. What still has no single answer is found by the
judge (judge.py), which asks DuckDB twice over differently ordered rows.
"""
import dataclasses
import random

import shapes
import tables
from parts import CATEGORY, MAKEABLE, NUMERIC, ORDERED, SMALL, Column, Query, Relation


def base_columns(alias):
    out = [Column(f"{alias}.id", "int", True)]
    for name, kind, _ in tables.COLUMNS:
        cat = CATEGORY.get(kind) or {"DEC": "dec", "ENU": "enum", "STR": "st", "MAP": "map", "UNI": "un"}[kind[:3]]
        out.append(Column(f"{alias}.{name}", cat, name in SMALL))
    return out


class Generator(shapes.Shapes):
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.names = 0
        self.shared = []  # CTEs: (name, columns, unique)
        self.large = False  # the one large table is in
        self.budget = 9  # relations that may still be put in: keeps joins small

    # ---- small helpers
    def chance(self, p):
        return self.r.random() < p

    def pick(self, *options):
        return self.r.choice(options)

    def weighted(self, *pairs):
        return self.r.choices([p[1] for p in pairs], [p[0] for p in pairs])[0]

    def name(self, prefix="c"):
        self.names += 1
        return f"{prefix}{self.names}"

    def literal(self, cat):
        r = self.r
        return {
            "int": lambda: self.pick("0", "1", "-1", "2", "3", "7", "5::BIGINT", "NULL::INTEGER", str(r.randint(-4, 22))),
            "dec": lambda: self.pick("0.5", "1.00", "(-2.5)", "3.0::DECIMAL(20,3)", "7::DECIMAL(5,1)", "0.00"),
            "dbl": lambda: self.pick("1.5::DOUBLE", "'nan'::DOUBLE", "0.0::DOUBLE", "'-inf'::DOUBLE", "3::FLOAT", "-8::DOUBLE"),
            "str": lambda: self.pick("''", "'a'", "'é'", "'7'", "'n1'", "'longer than twelve'", "NULL::VARCHAR", "'3'", "'v1'"),
            "bool": lambda: self.pick("true", "false", "NULL::BOOLEAN"),
            "date": lambda: self.pick("DATE '2024-01-15'", "DATE '2024-02-29'", "DATE '2023-12-31'"),
            "ts": lambda: self.pick("TIMESTAMP '2024-01-01 12:00:00'", "TIMESTAMP '2024-01-02'"),
            "tz": lambda: "TIMESTAMPTZ '2024-03-31 01:00:00+00'", "time": lambda: "TIME '12:00:00'", "uuid": lambda: "md5('1')::UUID",
            "iv": lambda: self.pick("INTERVAL 30 DAY", "INTERVAL 1 MONTH", "INTERVAL 0 DAY"), "blob": lambda: "'a'::BLOB",
            "enum": lambda: "'ok'", "il": lambda: self.pick("[1, NULL, 3]", "[]::INTEGER[]", "[3]"), "sl": lambda: "['v1', 'é']",
            "st": lambda: "{'a': 1, 'b': 'b1'}", "map": lambda: "MAP {'z': 1}", "ttz": lambda: "'12:00:00+02'::TIMETZ", "ar": lambda: "[1, NULL]::INTEGER[2]",
            "js": lambda: "'{\"a\": 1}'::JSON", "bit": lambda: "'01'::BIT", "un": lambda: "union_value(n := 2)"}[cat]()

    def column(self, cat, cols, small=False):
        fit = [c for c in cols if c.cat == cat and not c.approx and (c.small or not small)]
        return self.r.choice(fit).sql if fit else None

    # ---- expressions
    def expr(self, cat, cols, depth=2, small=False):
        """An expression of a category; small: one whose sums and products fit anywhere."""
        got = self.column(cat, cols, small)
        if got is not None and (depth <= 0 or self.chance(0.5)):
            return got
        if depth <= 0 or cat not in MAKEABLE or self.chance(0.1):
            return got or self.literal(cat)
        if self.chance(0.12):
            return self.generic(cat, cols, depth, small)
        return getattr(self, "e_" + cat)(cols, depth - 1, small)

    def generic(self, cat, cols, depth, small):
        def e():
            return self.expr(cat, cols, depth - 1, small)
        return self.pick(
            lambda: f"CASE WHEN {self.predicate(cols, depth - 1)} THEN {e()} ELSE {e()} END", lambda: f"coalesce({e()}, {e()})",
            lambda: f"nullif({e()}, {e()})", lambda: f"CASE WHEN {self.predicate(cols, depth - 1)} THEN {e()} END", lambda: f"TRY({e()})",
            lambda: f"if({self.predicate(cols, depth - 1)}, {e()}, {e()})")()

    def e_int(self, cols, depth, small):
        def e(cat="int", s=True):
            return self.expr(cat, cols, depth, s)
        n = self.r.randint(1, 9)
        return self.pick(
            lambda: f"({e()} + {e()})", lambda: f"({e()} - {n})", lambda: f"({e()} * {n})", lambda: f"({e('int', False)} % {n})",
            lambda: f"({e()} // {n})", lambda: f"-({e()}::BIGINT)", lambda: f"abs({e()}::INTEGER)", lambda: f"length({e('str')})",
            lambda: f"len({e('il')})", lambda: f"len({e('sl')})", lambda: f"({e('il')})[{self.pick(1, 2, -1)}]", lambda: f"({e('st')}).a",
            lambda: f"TRY_CAST({e('str')} AS INTEGER)", lambda: f"extract({self.pick('year', 'month', 'day', 'dow')} FROM {e('date')})",
            lambda: f"({e('bool')})::INTEGER", lambda: f"sign({e('dec', False)})", lambda: f"date_diff('day', {e('date')}, {e('date')})",
            lambda: f"greatest({e()}, {e()})", lambda: f"least({e()}, {n})", lambda: f"list_sum({e('il')})::INTEGER", lambda: f"strpos({e('str')}, 'a')",
            lambda: f"list_max({e('il')})", lambda: f"list_position({e('il')}, {n})", lambda: f"bit_count({e()}::INTEGER)", lambda: f"ascii({e('str')})",
            lambda: f"({e()}::HUGEINT + {e()})", lambda: f"({e()} & {n})", lambda: f"xor({e()}::BIGINT, {n})", lambda: f"hour({e('ts')})",
            lambda: f"list_reduce([{e()}::BIGINT, {n}], (p, q) -> p + q)")()

    def e_dec(self, cols, depth, small):
        def e(cat="dec", s=True):
            return self.expr(cat, cols, depth, s)
        return self.pick(
            lambda: f"({e()}::DECIMAL(12,2) + {e()}::DECIMAL(14,3))", lambda: f"({e()}::DECIMAL(9,2) * {e('int')}::INTEGER)",
            lambda: f"({e()}::DECIMAL(9,2) * {e()}::DECIMAL(9,2))", lambda: f"round({e()}, 1)", lambda: f"-({e()}::DECIMAL(20,4))",
            lambda: f"{e('int')}::DECIMAL(22,2)", lambda: f"abs({e()}::DECIMAL(20,3))", lambda: f"({e()}::DECIMAL(9,2) - 1.25)",
            lambda: f"TRY_CAST({e('str')} AS DECIMAL(10,1))", lambda: f"floor({e()})::DECIMAL(20,0)", lambda: f"({e()}::DECIMAL(12,3) % 3)")()

    def e_dbl(self, cols, depth, small):
        def e(cat="dbl", s=True):
            return self.expr(cat, cols, depth, s)
        return self.pick(
            lambda: f"({e()} + {e()})", lambda: f"({e('dbl', False)} * {self.pick(2, 0.5, -1)})", lambda: f"({e()} / 4)", lambda: f"abs({e('dbl', False)})",
            lambda: f"{e('int', False)}::DOUBLE", lambda: f"({e('int')} / 2)", lambda: f"{e('dec')}::DOUBLE", lambda: f"{e('int')}::FLOAT",
            lambda: f"round({e()}, 1)", lambda: f"isnan({e('dbl', False)})::INTEGER::DOUBLE", lambda: f"greatest({e('dbl', False)}, {e('dbl', False)})",
            lambda: f"ceil({e()})", lambda: f"sqrt(abs({e('int')}))", lambda: f"TRY_CAST({e('str')} AS DOUBLE)", lambda: f"list_avg({e('il')})")()

    def e_str(self, cols, depth, small):
        def e(cat="str"):
            return self.expr(cat, cols, depth, cat in NUMERIC)
        n = self.r.randint(1, 4)
        return self.pick(
            lambda: f"upper({e()})", lambda: f"lower({e()})", lambda: f"({e()} || {e()})", lambda: f"substr({e()}, {n}, 2)", lambda: f"left({e()}, {n})",
            lambda: f"replace({e()}, 'a', 'bb')", lambda: f"{e('int')}::VARCHAR", lambda: f"{e('dec')}::VARCHAR", lambda: f"{e('date')}::VARCHAR",
            lambda: f"concat_ws('-', {e()}, {e('int')}, {e()})", lambda: f"reverse({e()})", lambda: f"lpad({e()}, 5, '*')", lambda: f"trim({e()})",
            lambda: f"regexp_replace({e()}, '[aeé]', '<>', 'g')", lambda: f"string_split({e()}, ' ')[1]", lambda: f"md5({e()})",
            lambda: f"strftime({e('date')}, '%Y-%m')", lambda: f"printf('%05d', {e('int')}::INTEGER)", lambda: f"({e('sl')})[1]", lambda: f"({e('st')}).b",
            lambda: f"array_to_string({e('sl')}, '|')", lambda: f"{e('enum')}::VARCHAR", lambda: f"{e('il')}::VARCHAR", lambda: f"{e('uuid')}::VARCHAR",
            lambda: f"concat({e()}, {e('int')})", lambda: f"repeat({e()}, {n})", lambda: f"{e('st')}::VARCHAR", lambda: f"hex({e('blob')})",
            lambda: f"strip_accents({e()})", lambda: f"{e('tz')}::VARCHAR", lambda: f"date_trunc('hour', {e('ts')})::VARCHAR")()

    def e_bool(self, cols, depth, small):
        return f"({self.predicate(cols, depth)})"

    def e_date(self, cols, depth, small):
        def e(cat="date"):
            return self.expr(cat, cols, depth, True)
        return self.pick(lambda: f"({e()} + {self.r.randint(-9, 9)})", lambda: f"date_trunc('month', {e()})::DATE", lambda: f"{e('ts')}::DATE",
                         lambda: f"last_day({e()})", lambda: f"make_date(2024, 1 + abs({e('int')}::INTEGER) % 12, 3)")()

    def e_ts(self, cols, depth, small):
        def e(cat="ts"):
            return self.expr(cat, cols, depth, True)
        return self.pick(lambda: f"({e()} + INTERVAL {self.r.randint(1, 40)} HOUR)",
            lambda: f"date_trunc('{self.pick('day', 'month', 'hour')}', {e()})::TIMESTAMP",
                         lambda: f"{e('date')}::TIMESTAMP", lambda: f"({e('date')} + INTERVAL 1 MONTH)", lambda: f"time_bucket(INTERVAL 6 HOUR, {e()})",
                         lambda: f"{e('tz')}::TIMESTAMP")()

    def e_iv(self, cols, depth, small):
        return self.pick(lambda: f"({self.expr('ts', cols, depth, True)} - {self.expr('ts', cols, depth, True)})",
                         lambda: f"to_days(({self.expr('int', cols, depth, True)} % 40)::INTEGER)",
                         lambda: f"age({self.expr('ts', cols, depth, True)}, TIMESTAMP '2024-01-01')")()

    def e_il(self, cols, depth, small):
        def e(cat="il"):
            return self.expr(cat, cols, depth, True)
        n = self.r.randint(0, 5)
        return self.pick(
            lambda: f"[{e('int')}::INTEGER, {n}]", lambda: f"list_sort({e()})", lambda: f"list_transform({e()}, y -> y + {n})",
            lambda: f"list_filter({e()}, y -> y > {n})", lambda: f"list_concat({e()}, {e()})", lambda: f"list_sort(list_distinct({e()}))",
            lambda: f"({e()})[{n}:3]", lambda: f"range((abs({e('int')}::BIGINT) % 5)::INTEGER)::INTEGER[]", lambda: f"list_reverse({e()})",
            lambda: f"list_transform({e()}, (y, i) -> y * i::INTEGER)", lambda: f"[y + 1 FOR y IN {e()}]",
            lambda: f"list_transform({e()}, y -> (y + coalesce({e('int')}, 0))::INTEGER)", lambda: f"list_prepend({n}, {e()})",
            lambda: f"list_grade_up({e()})::INTEGER[]",
            lambda: self.array_of(cols) if depth > 0 and self.budget > 0 else e(), lambda: f"flatten([{e()}, {e()}])",
            lambda: f"list_intersect({e()}, [1, 2])")()

    def e_sl(self, cols, depth, small):
        def e(cat="sl"):
            return self.expr(cat, cols, depth, cat == "int")
        return self.pick(
            lambda: f"[{e('str')}, {e('str')}]", lambda: f"list_sort({e()}, 'DESC', 'NULLS LAST')", lambda: f"string_split({e('str')}, 'a')",
            lambda: f"list_transform({e()}, y -> y || '!')", lambda: f"list_append({e()}, {e('str')})", lambda: f"map_keys({e('map')})",
            lambda: f"list_transform({e('il')}, y -> y::VARCHAR)", lambda: f"list_filter({e()}, y -> y LIKE 'v%')")()

    def e_st(self, cols, depth, small):
        a, b = self.expr("int", cols, depth, True), self.expr("str", cols, depth)
        return self.pick(f"{{'a': {a}::INTEGER, 'b': {b}}}", f"struct_pack(a := {a}::INTEGER, b := {b})")

    # ---- predicates
    def predicate(self, cols, depth=2, subqueries=False):
        if depth > 0 and self.chance(0.2):
            p = [self.predicate(cols, depth - 1, subqueries) for _ in range(2)]
            return self.pick(f"({p[0]} AND {p[1]})", f"({p[0]} OR {p[1]})", f"NOT ({p[0]})", f"({p[0]} OR {p[1]})")
        if subqueries and self.budget > 0 and self.chance(0.45):
            return self.subquery_predicate(cols, depth)
        cat = self.pick("int", "int", "dec", "dbl", "str", "str", "date", "ts", "iv", "bool", "il", "st", "enum", "uuid", "tz", "blob", "ttz", "ar", "js",
                        "bit")
        d = max(depth - 1, 0)

        def e(c=None):
            return self.expr(c or cat, cols, d)
        if cat == "enum" and self.column("enum", cols) is None:
            cat = "str"
        return self.weighted(
            (5, lambda: f"{e()} {self.pick('=', '<', '>', '<=', '>=', '<>')} {e()}"), (2, lambda: f"{e()} IS {self.pick('', 'NOT ')}NULL"),
            (1, lambda: f"{e()} IS {self.pick('', 'NOT ')}DISTINCT FROM {e()}"), (1, lambda: f"{e()} BETWEEN {e()} AND {e()}"),
            (1, lambda: f"{e()} {self.pick('IN', 'NOT IN')} ({e()}, {self.literal(cat)}, {self.literal(cat)})"),
            (1, lambda: f"{e('str')} {self.pick('LIKE', 'NOT LIKE', 'ILIKE')} '{self.pick('%a%', 'n1%', '_', '%é', 'longer%twelve')}'"),
            (1, lambda: f"list_contains({e('il')}, {e('int')}::INTEGER)"), (1, lambda: f"{e('int')} % 3 = {self.r.randint(0, 2)}"),
            (1, lambda: e("bool") if self.column("bool", cols) else "true"), (1, lambda: f"{e('int')} {self.pick('<', '>', '=')} {e('dec')}"),
            (1, lambda: f"{e('int')} {self.pick('<', '>', '=')} {e('dbl')}"), (1, lambda: f"starts_with({e('str')}, 'n')"),
            (1, lambda: f"regexp_matches({e('str')}, '^[a-n]')"), (1, lambda: f"isfinite({e('dbl')})"))()

    def subquery_predicate(self, cols, depth):
        cat = self.pick("int", "int", "int", "dec", "dbl", "str", "date", "il", "iv")
        left = self.expr(cat, cols, 1)
        other = self.pick("int", "dec", "dbl") if cat in NUMERIC and self.chance(0.3) else cat
        sub = self.one_column(other, cols)
        scalar = self.scalar(cat, cols)
        compare = self.pick("=", "<>", "<", ">=")
        return self.weighted(
            (3, lambda: f"{left} {self.pick('IN', 'NOT IN')} ({sub})"), (1,
                lambda: f"({left} IN ({sub})) IS {self.pick('NULL', 'NOT TRUE', 'TRUE', 'FALSE')}"),
            (2, lambda: f"{self.pick('', 'NOT ')}EXISTS ({sub})"),
            (1, lambda: f"{left} {compare} {self.pick('ANY', 'ALL')} ({sub})"), (2, lambda: f"{left} {self.pick('=', '<', '>')} {scalar}"),
            (1, lambda: f"{scalar} IS NULL"), (2, lambda: self.rows_in(cols)))()

    def correlation(self, inner, outer):
        """A condition between the subquery's own columns and those around it."""
        for _ in range(8):
            o = self.r.choice(outer) if outer else None
            if o is None or o.approx:
                continue
            fit = [c for c in inner if c.cat == o.cat or (c.cat in NUMERIC and o.cat in NUMERIC and self.chance(0.2))]
            if fit:
                return f"{self.r.choice(fit).sql} {self.pick('=', '=', '=', '=', '<', 'IS NOT DISTINCT FROM', '<>')} {o.sql}"
        return "true"

    def one_column(self, cat, outer):
        """A subquery of one column, perhaps correlated."""
        rel = self.relation(1)
        where = [self.predicate(rel.columns, 1)] if self.chance(0.6) else []
        if self.chance(0.5):
            where.append(self.correlation(rel.columns, outer))
        text = f"SELECT {self.expr(cat, rel.columns, 1)} FROM {rel.sql}" + (f" WHERE {' AND '.join(where)}" if where else "")
        if self.chance(0.15):
            agg = self.aggregate(rel, exact=True, cats=(cat,))
            if agg is not None and self.chance(0.8):
                text = f"SELECT {agg[0]} FROM {rel.sql}" + (f" WHERE {' AND '.join(where)}" if where else "")
                if self.chance(0.5):
                    text += f" GROUP BY {self.expr('int', rel.columns, 0)}"
        return text

    def scalar(self, cat, outer):
        """A subquery of one value."""
        rel = self.relation(1)
        where = [self.correlation(rel.columns, outer)] if self.chance(0.7) else []
        if self.chance(0.4):
            where.append(self.predicate(rel.columns, 1))
        tail = f" FROM {rel.sql}" + (f" WHERE {' AND '.join(where)}" if where else "")
        if self.chance(0.25) and cat in ORDERED:
            ident = ", ".join(rel.identity())
            return f"(SELECT {self.expr(cat, rel.columns, 1)}{tail} ORDER BY {ident} LIMIT 1{self.pick('', ' OFFSET 1')})"
        value = self.expr(cat, rel.columns, 1)
        if cat == "int" and self.chance(0.4):
            return f"(SELECT count({self.pick('*', value, 'DISTINCT ' + value)}){tail})"
        fn = self.pick("min", "max") if cat != "int" or self.chance(0.6) else "sum"
        return f"(SELECT {fn}({self.expr(cat, rel.columns, 1, fn == 'sum')}){tail})"

    # ---- aggregates
    def total_order(self, rel, cols=None):
        first = [self.expr(self.pick("int", "str", "dec", "date", "dbl"), cols or rel.columns, 1)] if self.chance(0.6) else []
        keys = first + rel.identity()
        return ", ".join(k + self.pick("", " DESC", " NULLS FIRST", " DESC NULLS LAST") for k in keys)

    def aggregate(self, rel, exact=False, cats=None, window=False):
        """(text, category, approx, small) or None when none of `cats` came up."""
        for _ in range(20):
            got = self.any_aggregate(rel, window)
            if got is not None and (not exact or not got[2]) and (cats is None or got[1] in cats):
                return got
        return None

    def any_aggregate(self, rel, window):
        cols = rel.columns

        def e(cat, small=False):
            return self.expr(cat, cols, 1, small)
        num = self.pick("int", "dec", "dbl")
        any_cat = self.pick(*ORDERED)
        distinct = "DISTINCT " if self.chance(0.3) else ""
        order = "" if window else f" ORDER BY {self.total_order(rel)}"
        ident = rel.identity()
        key = ident[0] if len(ident) == 1 else "(" + ", ".join(ident) + ")"
        sep = self.pick("', '", "'|'", "''")
        n = self.r.randint(1, 3)

        def sorted_only(text):  # no order inside of window functions here
            return None if window else text
        options = [
            (8, lambda: ("count(*)", "int", False, True)), (4, lambda: (f"count({distinct}{e(any_cat)})", "int", False, True)),
            (6, lambda: (f"sum({distinct}{e(num, True)})", num, False, False)), (2, lambda: (f"sum({e('int')})", "int", False, False)),
            (1, lambda: (f"sum({e('dec')})", "dec", False, False)), (1, lambda: (f"sum({distinct}{self.wide(cols)})", "int", False, False)),
            (1, lambda: (f"avg({distinct}{self.wide(cols)})", "dbl", True, False)),
            (6, lambda: (f"{self.pick('min', 'max')}({distinct}{e(any_cat)})", any_cat, False, True)),
            (3, lambda: (f"avg({distinct}{e(num, True)})", "dbl", True, False)), (1, lambda: (f"bool_{self.pick('and', 'or')}({e('bool')})", "bool", False,
                True)),
            (1, lambda: (f"bit_{self.pick('and', 'or', 'xor')}({e('int', True)}::BIGINT)", "int", False, True)), (1, lambda: (f"count_if({e('bool')})",
                "int", False, True)),
            (1, lambda: (f"{self.pick('stddev', 'stddev_pop', 'variance', 'var_pop', 'sem')}({distinct}{e(num, True)})", "dbl", True, False)),
            (1, lambda: (f"{self.pick('skewness', 'kurtosis', 'kurtosis_pop', 'favg', 'fsum', 'kahan_sum')}({e('int', True)})", "dbl", True, False)),
            (1, lambda: (f"{self.pick('corr', 'covar_pop', 'covar_samp')}({e('int', True)}, {e('dec', True)})", "dbl", True, False)),
            (1, lambda: (f"regr_{self.pick('avgx', 'avgy', 'intercept', 'slope', 'r2', 'sxx', 'syy', 'sxy')}({e('dec', True)}, {e('int', True)})", "dbl",
                True, False)),
            (1, lambda: (f"regr_count({e('dec')}, {e('int')})", "int", False, True)), (1, lambda: (f"product(({e('int', True)} % 3)::DOUBLE)", "dbl", True,
                False)),
            (1, lambda: (f"median({distinct}{e(num, True)})", "dbl", True, False)), (1, lambda: (f"median({e('date')})", "ts", False, True)),
            (1, lambda: (f"quantile_cont({e(num, True)}, {self.pick('0.25', '0.5', '1', '[0.1, 0.9]')})", "map", True, False)),
            (1, lambda: (f"quantile_disc({distinct}{e(any_cat)}, {self.pick('0.25', '0.5', '1', '0')})", any_cat, False, True)),
            (1, lambda: (f"quantile_disc({e('int')}, [0.25, 0.75])", "map", True, False)), (1, lambda: (f"mad({e('int', True)})", "dbl", True, False)),
            (1, lambda: (f"entropy({e('int')})", "dbl", True, False)), (1, lambda: (f"approx_count_distinct({e(any_cat)})", "int", False, True)),
            (1, lambda: (f"histogram({e(self.pick('int', 'str', 'date'))})", "map", True, False)),
            (1, lambda: (f"arg_{self.pick('min', 'max')}({e(any_cat)}, {key})", any_cat, False, True)),
            (1, lambda: (f"{self.pick('min', 'max')}({e(self.pick('int', 'str', 'dec'))}, {n})", "map", True, False)),
            (1, lambda: (f"arg_{self.pick('min', 'max')}({e('int')}, {key}, {n})", "map", True, False) if len(ident) == 1 else None),
            (1, lambda: (f"arg_{self.pick('min', 'max')}_null({e(any_cat)}, {key})", any_cat, False, True)),
            (1, lambda: (f"list_sort(list(DISTINCT {e('int')}))", "map", True, False)),
            (1, lambda: (f"bitstring_agg(({e('int', True)} % 5)::INTEGER, -5, 5)::VARCHAR", "str", False, False)),
            (2, lambda: sorted_only((f"list({e(any_cat)}{order})", "map", True, False))), (1, lambda: sorted_only((f"array_agg({e('il')}{order})", "map",
                True, False))),
            (2, lambda: sorted_only((f"string_agg({e('str')}, {sep}{order})", "str", False, False))),
            (2, lambda: sorted_only((f"{self.pick('first', 'last', 'any_value')}({e(any_cat)}{order})", any_cat, False, True))),
            (1, lambda: sorted_only((lambda s: (f"string_agg(DISTINCT {s}, {sep} ORDER BY {s}{self.pick('', ' DESC')})", "str", False, False))(e("str")))),
            (1, lambda: sorted_only((lambda s: (f"list(DISTINCT {s} ORDER BY {s} DESC NULLS LAST)", "map", True, False))(e("int")))),
            (1, lambda: sorted_only((f"mode({key} ORDER BY {key})", "map", True, False)) if len(ident) == 1 else None),
            (1, lambda: sorted_only((f"percentile_disc(0.5) WITHIN GROUP (ORDER BY {e('int')}{self.pick('', ' DESC')})", "int", False, True))),
            (1, lambda: sorted_only((f"percentile_cont({self.pick('0.3', '0.5')}) WITHIN GROUP (ORDER BY {e('dec', True)} DESC)", "dbl", True, False)))]
        got = self.weighted(*options)()
        if got is None:
            return None
        if self.chance(0.2):
            got = (f"{got[0]} FILTER (WHERE {self.predicate(cols, 1)})" if "::VARCHAR" not in got[0] and not got[0].startswith("list_sort(") else got[0],
                ) + got[1:]
        return got

    def wide(self, cols):
        """Numbers whose sums need more than 64 bits, or nearly all of 128."""
        near = [c.sql for c in cols if c.sql.split(".")[-1] in ("big", "huge", "d38", "d18")]
        return self.pick(*near, "9223372036854775807", f"('1{'0' * 35}'::HUGEINT + {self.expr('int', cols, 0, True)})",
                         f"('{'9' * 34}'::DECIMAL(38,0))", f"({self.expr('int', cols, 0, True)}::HUGEINT * 1000000000000000000000)")

    # ---- windows
    def window(self, rel):
        cols = rel.columns
        part = [self.expr(self.pick("int", "str", "bool", "dec", "date", "dbl", "enum", "iv", "ttz", "ar"), cols, self.pick(0, 0, 1))
                for _ in range(self.pick(0, 1, 1, 1, 2))]
        order = self.total_order(rel)
        over = (f"PARTITION BY {', '.join(part)} " if part else "")
        cat = self.pick(*ORDERED)
        value = self.expr(cat, cols, 1)
        ranked = f"OVER ({over}ORDER BY {order})"
        n = self.r.randint(1, 4)
        ignore = self.pick("", "", " IGNORE NULLS")
        unit = self.pick("ROWS", "ROWS", "GROUPS")
        bound = self.pick("UNBOUNDED PRECEDING AND CURRENT ROW", f"{n} PRECEDING AND {n} FOLLOWING", "CURRENT ROW AND UNBOUNDED FOLLOWING",
                          f"{n} PRECEDING AND 1 PRECEDING", f"1 FOLLOWING AND {n + 1} FOLLOWING", "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING")
        exclude = self.pick("", "", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES")
        frame = f"OVER ({over}ORDER BY {order} {unit} BETWEEN {bound}{exclude})"
        side = self.pick("", "", " DESC", " NULLS FIRST", " DESC NULLS LAST")
        reach = self.pick(f"{n} PRECEDING AND CURRENT ROW", f"{n} PRECEDING AND 2 FOLLOWING", f"{n + 2} PRECEDING AND 1 PRECEDING",
                          f"CURRENT ROW AND {n} FOLLOWING", f"1 FOLLOWING AND {n} FOLLOWING", "CURRENT ROW AND CURRENT ROW")
        by_range = f"OVER ({over}ORDER BY {self.expr(self.pick('int', 'dec', 'dbl'), cols, 0, True)}{side} RANGE BETWEEN {reach}{exclude})"
        unit = self.pick("DAYS", "DAYS", "HOURS", "MONTH")
        reach = self.pick(f"INTERVAL {n} {unit} PRECEDING AND INTERVAL 1 {unit} FOLLOWING", f"INTERVAL {n} {unit} PRECEDING AND CURRENT ROW")
        by_date = f"OVER ({over}ORDER BY {self.expr(self.pick('date', 'ts', 'tz'), cols, 0, True)}{side} RANGE BETWEEN {reach}{exclude})"
        peers = f"OVER ({over}ORDER BY {self.expr(self.pick('int', 'str', 'dbl', 'date'), cols, 1)}{self.pick('', ' DESC', ' NULLS FIRST')})"

        def agg(where):
            got = self.aggregate(rel, window=True)
            for _ in range(20):
                if got is not None and not got[0].startswith(("list_sort", "bitstring")) and "WITHIN" not in got[0]:
                    return (f"{got[0]} {where}",) + got[1:]
                got = self.aggregate(rel, window=True)
            return (f"count(*) {where}", "int", False, True)
        return self.weighted(
            (3, lambda: (f"row_number() {ranked}", "int", False, True)), (2, lambda: (f"{self.pick('rank', 'dense_rank')}() {peers}", "int", False, True)),
            (1, lambda: (f"{self.pick('percent_rank', 'cume_dist')}() {peers}", "dbl", True, False)), (1, lambda: (f"ntile({n}) {ranked}", "int", False,
                True)),
            (3, lambda: (f"{self.pick('lag', 'lead')}({value}, {n}{ignore}) {ranked}", cat, False, True)),
            (1, lambda: (f"{self.pick('lag', 'lead')}({value}, {n}, {self.literal(cat)}) {ranked}", cat, False, True)),
            (2, lambda: (f"{self.pick('first_value', 'last_value')}({value}{ignore}) {frame}", cat, False, True)),
            (1, lambda: (f"nth_value({value}, {n}) {frame}", cat, False, True)), (3, lambda: agg(frame)), (3, lambda: agg(f"OVER ({over.strip()})")), (2,
                lambda: agg(peers)),
            (2, lambda: agg(by_range)), (2, lambda: agg(by_date)),
            (1, lambda: (f"sum({self.expr('int', cols, 1, True)} ORDER BY {order}) OVER ({over}ORDER BY {self.expr('int', cols, 0)})", "int", False,
                False)))()

    # ---- relations
    def relation(self, depth):
        self.budget -= 1
        if self.budget < 0:
            depth = 0
        kinds = [(8, self.base)]
        if self.shared:
            kinds.append((5, self.cte))
        if depth > 0:
            kinds += [(7, self.join), (4, self.derived), (1, self.values), (1, self.unnested), (1, self.lateral), (1, self.unpivoted), (1, self.pivoted),
                      (1, self.asof), (1, self.series), (1, self.sampled), (1, self.positional), (1, self.ordinality), (1, self.object_parts),
                      (1, self.scoped)]
        return self.weighted(*kinds)(depth)

    def base(self, depth):
        table = self.weighted((10, "t0"), (10, "t1"), (10, "t2"), (1, "t3"), (1, "t4"), (1, "t5"), (1, "t6"), (4, "t7"))
        if table == "t0" and self.large:
            table = self.pick("t1", "t2")
        self.large = self.large or table == "t0"
        alias = self.name("a")
        cols = base_columns(alias)
        keep = self.r.sample(cols[1:], 9) + [c for c in cols if c.sql.split(".")[1] in ("k", "kb", "s", "dt", "ts")]
        place = self.weighted((8, ""), (1, "st."))  # the same rows in a DuckDB file
        return Relation(f"{place}{table} {alias}", [cols[0]] + list(dict.fromkeys(keep)), [f"{alias}.id"])

    def sampled(self, depth):
        """Samples with one answer: of all rows, of none, or how many there are."""
        rel = self.base(0)
        if self.chance(0.5):
            n = self.pick("100%", "bernoulli(100%)", "system(100%)", "reservoir(5000 ROWS)", "bernoulli(0%)", "5000 ROWS", "0 ROWS", "reservoir(100%)")
            return Relation(f"{rel.sql} TABLESAMPLE {n}", rel.columns, rel.unique)
        alias, c = self.name("a"), self.name()
        sub = f"SELECT {self.expr('int', rel.columns, 1)} AS v FROM {rel.sql} WHERE {self.predicate(rel.columns, 1)}"
        return Relation(f"(SELECT count(*) AS {c} FROM (SELECT * FROM ({sub}) USING SAMPLE {self.pick(1, 7, 50, 400)} ROWS)) {alias}",
                        [Column(f"{alias}.{c}", "int", True)], [f"{alias}.{c}"])

    def positional(self, depth):
        """Rows by their number, of sides that are in order."""
        sides, columns = [], []
        for _ in range(2):
            rel = self.relation(0)
            alias, names, cats = self.name("a"), [self.name() for _ in range(2)], [self.pick("int", "str", "dec") for _ in range(2)]
            items = ", ".join(f"{self.expr(c, rel.columns, 1, True)} AS {n}" for c, n in zip(cats, names))
            where = f" WHERE {self.predicate(rel.columns, 1)}" if self.chance(0.5) else ""
            sides.append(f"(SELECT {items} FROM {rel.sql}{where} ORDER BY {', '.join(rel.identity())}) {alias}")
            columns += [Column(n, c) for c, n in zip(cats, names)]
        alias = self.name("a")
        return Relation(f"(SELECT * FROM {sides[0]} POSITIONAL JOIN {sides[1]}) {alias}", [dataclasses.replace(c, sql=f"{alias}.{c.sql}") for c in columns])

    def cte(self, depth):
        name, cols, unique = self.r.choice(self.shared)
        alias = self.name("a")
        return Relation(f"{name} {alias}", [dataclasses.replace(c, sql=f"{alias}.{c.sql}") for c in cols],
                        None if unique is None else [f"{alias}.{u}" for u in unique])

    def derived(self, depth):
        return self.wrap(self.query(depth - 1))

    def wrap(self, q):
        alias = self.name("a")
        return Relation(f"({q.sql}) {alias}", [dataclasses.replace(c, sql=f"{alias}.{c.sql}") for c in q.columns],
                        None if q.unique is None else [f"{alias}.{u}" for u in q.unique])

    def values(self, depth):
        cats = [self.pick("int", "str", "dec", "date") for _ in range(self.r.randint(1, 3))]
        rows = ", ".join("(" + ", ".join(self.literal(c) for c in cats) + ")" for _ in range(self.r.randint(1, 4)))
        alias, names = self.name("a"), [self.name() for _ in cats]
        return Relation(f"(VALUES {rows}) {alias}({', '.join(names)})", [Column(f"{alias}.{n}", c, c in NUMERIC) for n, c in zip(names, cats)])

    def series(self, depth):
        alias, n = self.name("a"), self.name()
        return Relation(f"{self.pick('range', 'generate_series')}({self.pick('0', '-3')}, {self.r.randint(0, 12)}) {alias}({n})", [Column(f"{alias}.{n}",
            "int", True)], [f"{alias}.{n}"])

    def unnested(self, depth):
        rel = self.relation(0)
        alias, a = self.name("a"), self.name()
        cat, inner = self.pick(("il", "int"), ("sl", "str"))
        call = f"unnest({self.expr(cat, rel.columns, 1)})"
        text = self.pick(f"{rel.sql} LEFT JOIN LATERAL {call} {alias}({a}) ON true", f"{rel.sql} CROSS JOIN LATERAL (SELECT {call}) {alias}({a})")
        return Relation(text, rel.columns + [Column(f"{alias}.{a}", inner, inner == "int")], rel.identity() + [f"{alias}.{a}"])

    def lateral(self, depth):
        rel = self.relation(0)
        inner = self.relation(0)
        alias, a, b = self.name("a"), self.name(), self.name()
        where = f"WHERE {self.correlation(inner.columns, rel.columns)}"
        if self.chance(0.5):
            sub = f"SELECT count(*), max({self.expr('int', inner.columns, 1)}) FROM {inner.sql} {where}"
        else:
            sub = (f"SELECT {self.expr('int', inner.columns, 0)}, {self.expr('int', inner.columns + rel.columns, 1)} FROM {inner.sql} {where} "
                   f"ORDER BY {', '.join(inner.identity())} LIMIT {self.r.randint(1, 3)}")
        text = self.pick(f"{rel.sql} CROSS JOIN LATERAL ({sub}) {alias}({a}, {b})", f"{rel.sql} LEFT JOIN LATERAL ({sub}) {alias}({a}, {b}) ON true")
        return Relation(text, rel.columns + [Column(f"{alias}.{a}", "int"), Column(f"{alias}.{b}", "int")])

    def unpivoted(self, depth):
        rel = self.relation(0)
        alias, i, n, v = self.name("a"), self.name(), self.name(), self.name()
        a, b = self.name(), self.name()
        cat = self.pick("int", "str", "dec")
        sub = f"SELECT {rel.identity()[0]} AS {i}, {self.expr(cat, rel.columns, 1, True)} AS {a}, {self.expr(cat, rel.columns, 1, True)} AS {b} FROM {rel.sql}"
        key = next((c for c in rel.columns if c.sql == rel.identity()[0]), None)
        nulls = self.pick("", " INCLUDE NULLS")
        return Relation(f"(SELECT * FROM ({sub}) UNPIVOT{nulls} ({v} FOR {n} IN ({a}, {b}))) {alias}",
                        ([dataclasses.replace(key, sql=f"{alias}.{i}")] if key else []) + [Column(f"{alias}.{n}", "str"), Column(f"{alias}.{v}", cat)])

    def pivoted(self, depth):
        rel = self.relation(0)
        alias, k, g, v = self.name("a"), self.name(), self.name(), self.name()
        sub = (f"SELECT {self.expr('str', rel.columns, 0)} AS {k}, {self.expr('int', rel.columns, 0)}::HUGEINT % 4 AS {g}, "
               f"{self.expr('int', rel.columns, 1, True)} AS {v} FROM {rel.sql}")
        fn = self.pick("sum", "count", "max")
        names = [f'"{i}"' for i in range(3)]
        return Relation(f"(SELECT * FROM (PIVOT ({sub}) ON {g} IN (0, 1, 2) USING {fn}({v}) GROUP BY {k})) {alias}",
                        [Column(f"{alias}.{k}", "str")] + [Column(f"{alias}.{n}", "int") for n in names], [f"{alias}.{k}"])

    def asof(self, depth):
        left, right = self.relation(0), self.relation(0)
        cat = self.pick("int", "ts", "date", "dec", "dbl")
        alias, k, o, v = self.name("a"), self.name(), self.name(), self.name()
        ground = {"int": "2", "ts": "TIMESTAMP '2024-01-02'", "date": "DATE '2024-01-15'", "dec": "1.5", "dbl": "1.5::DOUBLE"}[cat]
        kc = self.pick("int", "str")
        kexpr, oexpr = self.expr(kc, right.columns, 0), self.expr(cat, right.columns, 0)
        sub = f"(SELECT {kexpr} AS {k}, {oexpr} AS {o}, min({self.expr('int', right.columns, 1)}) AS {v} FROM {right.sql} GROUP BY ALL) {alias}"
        # no NULL on the left: DuckDB's sorted ASOF join finds it a match, its other algorithm doesn't
        on = f"coalesce({self.expr(cat, left.columns, 0)}, {ground}) {self.pick('>=', '>', '<', '<=')} {alias}.{o}"
        if self.chance(0.8):
            on = f"{self.expr(kc, left.columns, 0)} = {alias}.{k} AND {on}"
        else:
            sub = (f"(SELECT {oexpr} AS {o}, min({self.expr(kc, right.columns, 0)}) AS {k}, "
                   f"min({self.expr('int', right.columns, 1)}) AS {v} FROM {right.sql} GROUP BY ALL) {alias}")
        # not RIGHT, nor FULL: with one thread DuckDB 1.5.5 may wait for ever in them, whatever stops it
        return Relation(f"{left.sql} ASOF {self.pick('', 'LEFT ', 'LEFT ', '')}JOIN {sub} ON {on}",
                        left.columns + [Column(f"{alias}.{k}", kc), Column(f"{alias}.{o}", cat), Column(f"{alias}.{v}", "int")])

    def equality(self, left, right):
        for _ in range(12):
            a = self.r.choice([c for c in left.columns if not c.approx and c.cat != "map"] or left.columns)
            keys = [[c for c in r.columns if c.sql.split(".")[1][0] == "k" and c.cat in NUMERIC] for r in (left, right)]
            if all(keys) and self.chance(0.75):  # the same values in different types
                return f"{self.r.choice(keys[0]).sql} = {self.r.choice(keys[1]).sql}"
            fit = [c for c in right.columns if not c.approx and (c.cat == a.cat or (c.cat in NUMERIC and a.cat in NUMERIC))]
            # low cardinality on both sides makes products: rarely
            if fit:
                b = self.r.choice(fit)
                return f"{a.sql} {self.weighted((9, '='), (1, 'IS NOT DISTINCT FROM'))} {b.sql}"
        return "true"

    def join(self, depth):
        left, right = self.relation(depth - 1), self.relation(depth - 1)
        kind = self.weighted((6, "JOIN"), (5, "LEFT JOIN"), (3, "RIGHT JOIN"), (3, "FULL JOIN"), (3, "SEMI JOIN"), (3, "ANTI JOIN"), (1, "CROSS JOIN"))
        both = left.columns + right.columns
        if right.sql.count(" JOIN ") and not right.sql.startswith("("):
            right = dataclasses.replace(right, sql=f"({right.sql})")
        if kind == "CROSS JOIN":
            return Relation(f"{left.sql} {kind} {right.sql}", both, self.both(left, right))
        using = [n for n in ("k", "kb", "s", "id", "dt", "kd") if any(c.sql.endswith("." + n) for c in left.columns) and any(c.sql.endswith("." + n)
            for c in right.columns)]
        simple = all(r.sql.count(" ") == 1 for r in (left, right))
        if using and simple and self.chance(0.25):
            names = self.r.sample(using, self.r.randint(1, min(2, len(using))))
            text = f"{left.sql} {kind} {right.sql} USING ({', '.join(names)})"
        else:
            conds = [self.equality(left, right) for _ in range(self.weighted((1, 0), (5, 1), (3, 2)))]
            if not conds or self.chance(0.3):
                conds.append(self.weighted((3, lambda: self.inequality(left, right)), (2, lambda: self.predicate(both, 1)),
                                           (1, lambda: self.predicate(left.columns, 1)), (1, lambda: self.predicate(right.columns, 1)),
                                           (1, lambda: self.subquery_predicate(self.pick(left.columns, right.columns, both), 1)))())
            text = f"{left.sql} {kind} {right.sql} ON {' AND '.join(conds)}"
        if kind in ("SEMI JOIN", "ANTI JOIN"):
            return Relation(text, left.columns, left.unique)
        return Relation(text, both, self.both(left, right))

    def both(self, left, right):
        return None if left.unique is None or right.unique is None else left.unique + right.unique

    def inequality(self, left, right):
        if self.chance(0.3):  # a point in a span
            cat = self.pick("int", "dec", "dbl", "date")
            point, span = (left, right) if self.chance(0.5) else (right, left)
            x, a = self.expr(cat, point.columns, 0, True), self.expr(cat, span.columns, 0, True)
            b = self.expr(cat, span.columns, 0, True) if self.chance(0.3) else f"{a} + {self.r.randint(0, 3)}"
            return self.pick(f"{x} BETWEEN {a} AND {b}", f"{x} >= {a} AND {x} < {b}", f"{x} > {a} AND {x} <= {b}")
        cat = self.pick("int", "dec", "date", "dbl", "str", "ts")
        return f"{self.expr(cat, left.columns, 0)} {self.pick('<', '<=', '>', '>=', '<>')} {self.expr(cat, right.columns, 0)}"

    # ---- queries
    def query(self, depth, cats=None):
        if depth > 0 and self.chance(0.15):
            return self.set_operation(depth, cats)
        if cats is None and self.chance(0.06):
            return self.pick(self.recursive, self.recursive, self.by_key, self.by_name)()
        return self.select(depth, cats)

    def set_operation(self, depth, cats):
        cats = cats or [self.pick("int", "int", "dec", "dbl", "str", "str", "date", "iv", "il", "bool", "ts", "st") for _ in range(self.r.randint(1, 3))]
        left = self.query(depth - 1, cats)
        # numbers of other types on the right side
        right = self.query(depth - 1, [self.pick("int", "dbl", c) if c in ("int", "dbl") and self.chance(0.3) else c for c in cats])
        op = self.pick("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
        columns = [Column(a.sql, "dbl" if "dbl" in (a.cat, b.cat) else a.cat, False, a.approx or b.approx) for a, b in zip(left.columns, right.columns)]
        return Query(f"({left.sql}) {op} ({right.sql})", columns, False, None if "ALL" in op else [c.sql for c in columns])

    def recursive(self):
        name, n, v = self.name("rec"), self.name(), self.name()
        rel = self.relation(0)
        cap = self.r.randint(2, 6)
        base = f"SELECT {self.expr('int', rel.columns, 0, True)}::BIGINT AS {n}, 0::BIGINT AS {v} FROM {rel.sql} WHERE {self.predicate(rel.columns, 0)}"
        table = self.pick("t2", "t7", "t1")
        step = self.pick(f"SELECT ({n} + 1) % 7, {v} + 1 FROM {name} WHERE {v} < {cap}",
            f"SELECT b.kb, {v} + 1 FROM {name} JOIN (SELECT DISTINCT kb, z FROM {table}) b ON b.kb = {n} + 1 WHERE {v} < {cap}",
                         f"SELECT b.kb, {v} + 1 FROM (SELECT kb, max(k) AS mk FROM {table} GROUP BY kb) b, {name} WHERE b.mk = {n} AND {v} < {cap}")
        return Query(f"WITH RECURSIVE {name}({n}, {v}) AS ({base} UNION {step}) SELECT {n}, {v} FROM {name}",
                     [Column(n, "int", True), Column(v, "int", True)], False, [n, v])

    def items(self, makers):
        """SELECT list from (text, category, approx, small) tuples: texts and columns."""
        texts, columns = [], []
        for text, cat, approx, small in makers:
            name = self.name()
            texts.append(f"{text} AS {name}")
            columns.append(Column(name, cat, small, approx))
        return texts, columns

    def select(self, depth, cats=None):
        rel = self.relation(depth)
        if depth > 0 and self.chance(0.06):
            more = self.relation(0)
            rel = Relation(f"{rel.sql}, {more.sql}", rel.columns + more.columns, self.both(rel, more))
        where = self.predicate(rel.columns, 2, subqueries=depth > 0) if self.chance(0.5) else None
        some = self.column("int", rel.columns, True)
        if where and some and self.chance(0.5):  # or too many results are empty
            where = f"{where} OR {some} % 2 = 0"
        tail = f" FROM {rel.sql}" + (f" WHERE {where}" if where else "")
        mode = self.weighted((4, "plain"), (5, "group"), (3, "window"), (1, "distinct"), (1, "distinct on"), (1, "total"), (1, "ranked groups"),
            (1 if depth > 0 and self.budget > 0 else 0, "subqueries"))
        if cats is not None:
            mode = self.pick("plain", "plain", "distinct", "group")
        return getattr(self, "s_" + mode.replace(" ", "_"))(rel, tail, depth, cats)

    def plain_items(self, rel, depth, cats):
        cats = cats or [self.pick("int", "int", "str", "dec", "dbl", "date", "bool", "ts", "il", "sl", "st", "iv", "enum", "tz", "blob", "uuid", "time",
            "ttz", "ar", "js", "bit", "un") for _ in range(self.r.randint(1, 4))]
        out = []
        for c in cats:
            if c not in MAKEABLE and self.column(c, rel.columns) is None:
                c = "int"
            if depth > 0 and self.budget > 0 and c in ORDERED and self.chance(0.1):
                out.append((self.scalar(c, rel.columns), c, False, False))
            elif depth > 0 and self.budget > 0 and c == "bool" and self.chance(0.4):
                out.append((self.subquery_predicate(rel.columns, 1), c, False, False))
            else:
                out.append((self.expr(c, rel.columns, 2), c, False, False))
        return out

    def s_plain(self, rel, tail, depth, cats):
        texts, columns = self.items(self.plain_items(rel, depth, cats))
        unique = None
        if cats is None and self.chance(0.5) and rel.unique and len(rel.unique) <= 3:
            more, added = self.items([(u, "int", False, False) for u in rel.unique])
            texts, columns, unique = texts + more, columns + added, [c.sql for c in added]
        return self.finish(Query(f"SELECT {', '.join(texts)}{tail}", columns, unique=unique), depth)

    def s_distinct(self, rel, tail, depth, cats):
        texts, columns = self.items(self.plain_items(rel, depth, cats))
        return self.finish(Query(f"SELECT DISTINCT {', '.join(texts)}{tail}", columns, unique=[c.sql for c in columns]), depth)

    def s_distinct_on(self, rel, tail, depth, cats):
        on = [self.expr(self.pick("int", "str", "date", "dec"), rel.columns, 1) for _ in range(self.r.randint(1, 2))]
        texts, columns = self.items(self.plain_items(rel, depth, None))
        order = ", ".join(on + rel.identity()) if self.chance(0.5) else ", ".join(rel.identity())
        return Query(f"SELECT DISTINCT ON ({', '.join(on)}) {', '.join(texts)}{tail} ORDER BY {order}", columns)

    def s_total(self, rel, tail, depth, cats):
        texts, columns = self.items([self.aggregate(rel) or ("count(*)", "int", False, True) for _ in range(self.r.randint(1, 4))])
        having = f" HAVING {self.pick('count(*) > 3', 'max(' + self.expr('int', rel.columns, 1) + ') IS NOT NULL')}" if self.chance(0.15) else ""
        return Query(f"SELECT {', '.join(texts)}{tail}{having}", columns, unique=[])

    def s_group(self, rel, tail, depth, cats):
        key_cats = [self.pick("int", "int", "str", "str", "dec", "dbl", "date", "bool", "enum", "iv", "il", "st", "uuid", "ts", "tz", "ttz", "ar", "js",
            "bit") for _ in range(self.pick(1, 1, 2, 2, 3))]
        keys = [(self.expr(c, rel.columns, self.pick(0, 1)), c) for c in key_cats if c in MAKEABLE or self.column(c, rel.columns)] or [(self.expr("int",
            rel.columns, 0), "int")]
        group = ", ".join(k for k, _ in keys)
        sets = False
        plain_columns = all(k.count(".") == 1 and " " not in k and "(" not in k and "'" not in k for k, _ in keys) and len({k for k, _ in keys}) == len(keys)
        if (plain_columns or (len({k for k, _ in keys}) == len(keys) and self.chance(0.4))) and len(keys) > 1 and self.chance(0.35):
            group = self.pick(f"ROLLUP ({group})", f"CUBE ({group})", f"GROUPING SETS (({keys[0][0]}), ({group}), ())",
                f"GROUPING SETS (({keys[0][0]}), ({keys[1][0]}))")
            sets = True
        if any(k.lstrip("-").split("::")[0].isdigit() for k, _ in keys):  # a number would be a position
            keys, group, sets = [(f"({k} + 0)" if c == "int" else k, c) for k, c in keys], None, False
            group = ", ".join(k for k, _ in keys)
        items = [(k, c, False, False) for k, c in keys]
        if cats is None:
            n = self.r.randint(0 if not sets else 1, 4)
            for _ in range(n):
                items.append(self.aggregate(rel) or ("count(*)", "int", False, True))
            if sets:
                items.append((f"grouping({keys[0][0]})", "int", False, True))
            unique = None
        else:
            inner = [Column(k, c) for k, c in keys] + [Column(a[0], a[1], a[3]) for a in (self.aggregate(rel, exact=True) for _ in range(2)) if a]
            items = [(self.expr(c, inner, 1), c, False, False) for c in cats]
            unique = None
        having = ""
        if self.chance(0.2):
            a = self.aggregate(rel, exact=True, cats=("int", "dec", "str", "dbl"))
            if a:
                having = f" HAVING {a[0]} {self.pick('>', '<=', 'IS NOT DISTINCT FROM', '<>')} {self.literal(a[1])}"
        texts, columns = self.items(items)
        if cats is None and not sets:
            unique = [c.sql for c in columns[:len(keys)]]
        q = Query(f"SELECT {', '.join(texts)}{tail} GROUP BY {group}{having}", columns, unique=unique)
        return self.finish(q, depth)

    def s_window(self, rel, tail, depth, cats):
        if len(rel.identity()) > 12:
            return self.s_plain(rel, tail, depth, cats)
        # rows of t5 are all equal: two windows may each put them into an order of its own
        windows = 1 if "t5 " in rel.sql else self.r.randint(1, 3)
        makers = self.plain_items(rel, 0, None)[:2] + [self.window(rel) for _ in range(windows)]
        texts, columns = self.items(makers)
        qualify = ""
        if self.chance(0.3) and "t5 " not in rel.sql:
            w = self.window(rel)
            qualify = (f" QUALIFY {w[0]} {self.pick('<=', '=', 'IS NOT DISTINCT FROM')} {self.literal(w[1])}"
                       if not w[2] and w[1] in MAKEABLE else
                       f" QUALIFY row_number() OVER (PARTITION BY {self.expr('int', rel.columns, 0)} ORDER BY {', '.join(rel.identity())}) <= 2")
        return Query(f"SELECT {', '.join(texts)}{tail}{qualify}", columns)

    def finish(self, q, depth):
        """ORDER BY and LIMIT, which make sense at the top and in subqueries."""
        if not self.chance(0.3):
            return q
        keys = [c for c in q.columns if not c.approx and c.cat != "map"]
        if len(keys) < len(q.columns):
            return q
        self.r.shuffle(keys)
        order = ", ".join(c.sql + self.pick("", " DESC", " NULLS FIRST", " DESC NULLS LAST", " ASC NULLS LAST") for c in keys)
        text = f"{q.sql} ORDER BY {order}"
        limit = self.weighted((3, ""), (4, f" LIMIT {self.pick(0, 1, 3, 10, 50, 1000)}"), (2,
            f" LIMIT {self.r.randint(1, 40)} OFFSET {self.pick(0, 1, 5, 100)}"),
                              (1, f" OFFSET {self.pick(1, 10)}"), (1, f" LIMIT {self.pick(10, 50, 100)}%"))
        return Query(text + limit, q.columns, True, q.unique)

    def pivot_of_values(self):
        """The columns are the values that are there."""
        rel = self.relation(1)
        k, g, v = self.name(), self.name(), self.name()
        on = self.pick(f"{self.expr('int', rel.columns, 0)}::HUGEINT % 5", f"left({self.expr('str', rel.columns, 0)}, 1)", self.expr("bool", rel.columns, 1))
        sub = f"SELECT {self.expr('str', rel.columns, 0)} AS {k}, {on} AS {g}, {self.expr('int', rel.columns, 1, True)} AS {v} FROM {rel.sql}"
        fn = self.pick(f"sum({v})", f"count({v})", f"max({v})", "count(*)", f"sum({v}), count(*)")
        return Query(f"PIVOT ({sub}) ON {g} USING {fn} GROUP BY {k}", [])

    def top(self):
        if self.chance(0.01):
            return self.pivot_of_values()
        ctes = []
        if self.chance(0.25):
            for _ in range(self.r.randint(1, 2)):
                q = self.query(1)
                if any(c.cat == "map" for c in q.columns):
                    continue
                name = self.name("cte")
                ctes.append(f"{name} AS {self.pick('', '', 'MATERIALIZED ', 'NOT MATERIALIZED ')}({q.sql})")
                self.shared.append((name, q.columns, q.unique))
        self.budget = 6
        q = self.query(2)
        if ctes:
            recursive = "RECURSIVE " if "WITH RECURSIVE" in q.sql else ""
            q = dataclasses.replace(q, sql=f"WITH {', '.join(ctes)} {q.sql}" if not recursive else f"WITH {', '.join(ctes)} SELECT * FROM ({q.sql}) last",
                ordered=q.ordered and not recursive)
        return q


def query(seed):
    return Generator(seed).top()


if __name__ == "__main__":
    import sys
    for s in sys.argv[1:]:
        print(query(int(s)).sql)
