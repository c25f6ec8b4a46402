# SPDX-License-Identifier: Apache-2.0
"""Queries of rarer shapes, mixed into grammar.Generator: subqueries in every place that takes an expression (ON, ORDER BY, GROUP BY, HAVING,
QUALIFY, inside of aggregates and of windows), rows compared with rows, arrays of subqueries, windows over aggregates, WITH inside of subqueries,
UNION BY NAME, WITH ORDINALITY, objects taken apart, computed limits, recursion by key, types that Parquet has no name for.
"""
import dataclasses

from parts import Column, NUMERIC, Query, Relation


class Shapes:
    # ---- predicates
    def rows_in(self, cols):
        """(a, b) [NOT] IN (SELECT …); DuckDB takes no correlated one."""
        cats = [self.pick("int", "int", "dec", "str", "date") for _ in range(self.pick(2, 2, 3))]
        rel = self.relation(1)
        left = ", ".join(self.expr(c, cols, 0) for c in cats)
        others = [self.pick("int", "dec") if c in NUMERIC and self.chance(0.2) else c for c in cats]
        right = ", ".join(self.expr(c, rel.columns, 0) for c in others)
        where = [self.predicate(rel.columns, 1)] if self.chance(0.4) else []
        tail = f"FROM {rel.sql}" + (f" WHERE {' AND '.join(where)}" if where else "")
        return f"({left}) {self.pick('IN', 'IN', 'NOT IN')} (SELECT {right} {tail})"

    def array_of(self, cols):
        """An INTEGER[] out of a subquery; one without rows is NULL."""
        rel = self.relation(1)
        where = f" WHERE {self.correlation(rel.columns, cols)}" if self.chance(0.7) else ""
        return (f"ARRAY(SELECT {self.expr('int', rel.columns, 0, True)}::INTEGER FROM {rel.sql}{where} "
                f"ORDER BY {', '.join(rel.identity())} LIMIT {self.r.randint(1, 4)})")

    def inside(self, cat, cols):
        """A subquery's value, or nothing when there are too many already."""
        return self.scalar(cat, cols) if self.budget > 0 else None

    # ---- relations
    def ordinality(self, depth):
        rel = self.relation(0)
        alias, a, n = self.name("a"), self.name(), self.name()
        cat, inner = self.pick(("il", "int"), ("sl", "str"))
        return Relation(f"{rel.sql} CROSS JOIN LATERAL unnest({self.expr(cat, rel.columns, 1)}) WITH ORDINALITY {alias}({a}, {n})",
                        rel.columns + [Column(f"{alias}.{a}", inner, inner == "int"), Column(f"{alias}.{n}", "int", True)], rel.identity() + [f"{alias}.{n}"])

    def object_parts(self, depth):
        rel = self.relation(0)
        alias, k, v = self.name("a"), self.name(), self.name()
        made = f"json_object('p', {self.expr('int', rel.columns, 1)}, 'q', {self.expr('str', rel.columns, 0)})"
        inner = f"SELECT key AS {k}, value::VARCHAR AS {v} FROM json_each({made})"
        return Relation(f"{rel.sql} CROSS JOIN LATERAL ({inner}) {alias}", rel.columns + [Column(f"{alias}.{k}", "str"), Column(f"{alias}.{v}", "str")],
                        rel.identity() + [f"{alias}.{k}"])

    def scoped(self, depth):
        """WITH inside of a subquery, whose names end with it; read once or twice."""
        name, alias = self.name("cte"), self.name("a")
        outer = list(self.shared)
        q = self.select(0)
        if any(c.cat == "map" or c.approx for c in q.columns):
            return self.wrap(q)
        self.shared.append((name, q.columns, q.unique))
        body = self.select(1)
        self.shared = outer
        text = f"WITH {name} AS {self.pick('', 'MATERIALIZED ')}({q.sql}) {body.sql}"
        return Relation(f"({text}) {alias}", [dataclasses.replace(c, sql=f"{alias}.{c.sql}") for c in body.columns])

    # ---- queries
    def by_name(self):
        """Columns of the two sides meet by their names; what one of them hasn't is NULL there."""
        names, cats = [self.name() for _ in range(3)], [self.pick("int", "str", "dec", "date") for _ in range(3)]
        sides = []
        for own in ((0, 1), (2, 0)):
            rel = self.relation(1)
            items = ", ".join(f"{self.expr(cats[i], rel.columns, 1)} AS {names[i]}" for i in own)
            sides.append(f"SELECT {items} FROM {rel.sql}")
        op = self.pick("UNION ALL BY NAME", "UNION BY NAME")
        return Query(f"({sides[0]}) {op} ({sides[1]})", [Column(n, c) for n, c in zip(names, cats)], False, names if "ALL" not in op else None)

    def by_key(self):
        """Rounds that replace rows of one key; each gives a key once, so that nothing depends on their order."""
        name, k, v = self.name("rec"), self.name(), self.name()
        rel = self.relation(0)
        cap = self.r.randint(2, 6)
        base = (f"SELECT {self.expr('int', rel.columns, 0, True)}::BIGINT AS {k}, min({self.expr('int', rel.columns, 0, True)})::BIGINT AS {v} "
                f"FROM {rel.sql} GROUP BY 1")
        step = self.pick(f"SELECT {k}, {v} + 1 FROM {name} WHERE {v} < {cap}",
                         f"SELECT r.{k}, min(r.{v}) + 1 FROM {name} r JOIN {self.pick('t2', 't7')} b ON b.kb = r.{k} WHERE r.{v} < {cap} GROUP BY r.{k}",
                         f"SELECT r.{k}, max(o.{v}) + 2 FROM {name} r JOIN recurring.{name} o ON o.{k} = r.{k} WHERE r.{v} < {cap} GROUP BY r.{k}")
        return Query(f"WITH RECURSIVE {name}({k}, {v}) USING KEY ({k}) AS ({base} UNION {step}) SELECT {k}, {v} FROM {name}",
                     [Column(k, "int", True), Column(v, "int", True)], False, [k])

    def s_ranked_groups(self, rel, tail, depth, cats):
        """Windows over the groups of the same SELECT."""
        keys = [self.expr(c, rel.columns, 0) for c in (self.pick("int", "str"), self.pick("int", "dec", "date"))]
        if any(k.lstrip("-").split("::")[0].isdigit() for k in keys):
            return self.s_group(rel, tail, depth, cats)
        order = ", ".join(k + self.pick("", " DESC", " NULLS FIRST") for k in keys)
        total = self.pick("count(*)", f"sum({self.expr('int', rel.columns, 0, True)})", f"max({self.expr('int', rel.columns, 0, True)})")
        over = self.pick(f"PARTITION BY {keys[0]} ORDER BY {keys[1]}", f"ORDER BY {order}", f"ORDER BY {total} DESC, {order}", f"PARTITION BY {keys[0]}", "")
        window = self.pick(f"sum({total}) OVER ({over})", f"rank() OVER (ORDER BY {total})", f"row_number() OVER (ORDER BY {total}, {order})",
                           f"lag({total}) OVER (ORDER BY {order})", f"max({keys[0]}) OVER ({over})")
        cat = "int" if not window.startswith("max") else "str"  # a result only
        texts, columns = self.items([(keys[0], "str", False, False), (keys[1], "str", False, False), (total, "int", False, False), (window, cat, False, False)])
        qualify = f" QUALIFY row_number() OVER (PARTITION BY {keys[0]} ORDER BY {order}) <= 2" if self.chance(0.3) else ""
        return Query(f"SELECT {', '.join(texts)}{tail} GROUP BY {', '.join(keys)}{qualify}", [dataclasses.replace(c, cat="map") for c in columns])

    def s_subqueries(self, rel, tail, depth, cats):
        """Subqueries where others have columns."""
        cols = rel.columns
        value = self.scalar("int", cols)
        kind = self.pick("group", "inside", "filter", "having", "window", "order", "qualify")
        if kind == "group":
            texts, columns = self.items([(value, "int", False, False), self.aggregate(rel) or ("count(*)", "int", False, True)])
            return Query(f"SELECT {', '.join(texts)}{tail} GROUP BY 1", columns, unique=[columns[0].sql])
        if kind in ("inside", "filter", "having"):
            call = {"inside": f"{self.pick('max', 'count', 'min', 'sum')}({value})",
                    "filter": f"count(*) FILTER (WHERE {self.subquery_predicate(cols, 1)})", "having": "count(*)"}[kind]
            key = self.expr("str", cols, 0)
            texts, columns = self.items([(key, "str", False, False), (call, "int", False, False)])
            having = f" HAVING {self.subquery_predicate([Column('max(' + self.expr('int', cols, 0) + ')', 'int')], 1)}" if kind == "having" else ""
            return Query(f"SELECT {', '.join(texts)}{tail} GROUP BY {key}{having}", columns)
        order = ", ".join(rel.identity())
        texts, columns = self.items(self.plain_items(rel, 0, ["int", "str"]))
        if kind == "window":
            over = self.pick(f"PARTITION BY {value} ORDER BY {order}", f"ORDER BY {value}, {order}")
            texts.append(f"{self.pick('row_number()', 'count(*)', 'lag(' + self.expr('int', cols, 0) + ')')} OVER ({over}) AS {self.name('w')}")
            return Query(f"SELECT {', '.join(texts)}{tail}", columns + [Column(texts[-1].rsplit(' ', 1)[1], "int")])
        if kind == "qualify":
            return Query(f"SELECT {', '.join(texts)}{tail} QUALIFY row_number() OVER (ORDER BY {order}) <= {value}", columns)
        limit = self.pick(f" LIMIT {self.r.randint(1, 30)}", f" LIMIT (SELECT count(*) FROM {self.pick('t2', 't3', 't5')})",
                          " LIMIT (SELECT 5) OFFSET (SELECT 2)", "")
        return Query(f"SELECT {', '.join(texts)}{tail} ORDER BY {value}{self.pick('', ' DESC', ' NULLS FIRST')}, {order}{limit}", columns, True)
