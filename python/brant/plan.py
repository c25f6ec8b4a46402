# SPDX-License-Identifier: Apache-2.0
"""What a DataFrame is made of: levels of SELECT, each with the names of its columns, printed as one SQL text. A level takes more clauses as
long as they mean the same inside it; else the next one is put around it. What is used in two places is printed once, as a CTE."""
import re

from brant import errors
from brant.literal import quote


def invalid(message):
    """The exception for what the caller got wrong."""
    return errors.InvalidError(message, "INVALID", "USER")


class Node:
    """A piece of the query. names: its columns, known without the engine once they have been asked for."""

    udfs = ()
    bulky = True  # too long to be printed twice

    def children(self):
        """The nodes that stand in its text."""
        return []

    def names(self, session):
        """The names of its columns."""
        return [n for n, _ in self.schema(session)]

    def schema(self, session):
        """Names and types, by planning the query, without running it."""
        if not hasattr(self, "_schema"):
            self._schema = describe(session, self)
        return self._schema

    def known_types(self):
        """The types, if they have been asked for; else None."""
        return [t for _, t in self._schema] if hasattr(self, "_schema") else None


class Table(Node):
    """What can stand behind FROM: a table function, a table's name, a query in parentheses."""

    bulky = False

    def __init__(self, text):
        self.text = text

    def from_text(self, session):
        """Its text."""
        return self.text


class Raw(Node):
    """A query made of texts and nodes. columns: their names, if known."""

    def __init__(self, parts, columns=None, udfs=()):
        self.parts, self.columns, self.udfs = parts, columns, udfs

    def children(self):
        return [p for p in self.parts if isinstance(p, Node)]

    def names(self, session):
        return self.columns if self.columns is not None else super().names(session)


class Column:
    """A column of a level: its name, its text, and the name of the column below if it is just that."""

    __slots__ = ("name", "text", "source")

    def __init__(self, name, text=None, source=None):
        self.name, self.source = name, source
        self.text = quote(source) if text is None else text

    def __str__(self):
        return self.text if self.source == self.name else f"{self.text} AS {quote(self.name)}"


class Select(Node):
    """A level. source: texts and nodes behind FROM. columns: None is all."""

    sealed = False

    def __init__(self, source, input_names=None):
        self.source, self.input_names = tuple(source), input_names
        self.columns, self.distinct, self.where, self.group, self.qualify, self.order = None, None, [], None, [], []
        self.limit = self.offset = None
        self.udfs = ()
        self.sealed = type(self).sealed  # nothing but LIMIT may be added to it
        self.unnests = False

    def copy(self):
        """Another one like it, to be changed."""
        s = Select(self.source, self.input_names)
        s.columns, s.distinct, s.group, s.limit, s.offset, s.udfs = (
            self.columns, self.distinct, self.group, self.limit, self.offset, self.udfs)
        s.where, s.qualify, s.order = list(self.where), list(self.qualify), list(self.order)
        s.sealed, s.unnests = self.sealed, self.unnests
        return s

    def children(self):
        return [p for p in self.source if isinstance(p, Node)]

    def below(self, session):
        """The names of the columns behind FROM."""
        return self.input_names if self.input_names is not None else self.source[0].names(session)

    def names(self, session):
        return self.below(session) if self.columns is None else [c.name for c in self.columns]

    def is_plain(self):
        """Are its columns those below, under their names?"""
        return self.columns is None or all(c.source == c.name for c in self.columns)

    def is_bare(self):
        """Is it only SELECT * FROM something?"""
        return (self.columns is None and self.limit is None and not self.offset and self.distinct is None and self.group is None
                and not (self.where or self.qualify or self.order))

    def is_cut(self):
        """Has it LIMIT or OFFSET?"""
        return self.limit is not None or bool(self.offset)

    def columns_text(self, names):
        """What stands behind SELECT; the star, where it is shorter."""
        if self.columns is None:
            return "*"
        if names is None or self.input_names is None and len(self.source) > 1:
            return ", ".join(map(str, self.columns))
        star = _star(self.columns, names)
        plain = ", ".join(map(str, self.columns))
        return star if star is not None and (len(star) < len(plain)) else plain


def _star(columns, names):
    """The columns as * EXCLUDE … REPLACE … RENAME …, added ones; None if it can't be said so."""
    below = {n.lower(): i for i, n in enumerate(names)}
    place, exclude, replace, rename, added = 0, [], [], [], []
    for c in columns:
        at = below.get((c.source if c.source is not None else c.name).lower())
        if at is None or at < place or added:
            added.append(c)
            if at is not None and at >= place:
                return None
            continue
        exclude += names[place:at]
        if c.source is None:
            replace.append(c)
        elif c.source != c.name:
            rename.append(c)
        place = at + 1
    exclude += names[place:]
    if place == 0:
        return None
    if {n.lower() for n in exclude} & {c.name.lower() for c in replace + rename}:
        return None
    text = "*"
    for word, items in (("EXCLUDE", [quote(n) for n in exclude]), ("REPLACE", [f"{c.text} AS {quote(c.name)}" for c in replace]),
                        ("RENAME", [f"{quote(c.source)} AS {quote(c.name)}" for c in rename])):
        if items:
            text += f" {word} ({', '.join(items)})"
    return ", ".join([text, *map(str, added)])


# ---- printing


def _shared(root):
    """The nodes that the text has in more than one place, each after those that it needs."""
    seen, order, stack = {}, [], [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
            continue
        seen[id(node)] = seen.get(id(node), 0) + 1
        if seen[id(node)] == 1:
            stack.append((node, True))
            stack.extend((c, False) for c in reversed(node.children()))
    return [n for n in order if seen[id(n)] > 1 and (n.bulky or not isinstance(n, Table)) and not (isinstance(n, Select) and n.is_bare())]


def _all_of(conditions):
    """Conditions (text, does it hold together beside AND?) as texts."""
    return [text if tight or len(conditions) == 1 else f"({text})" for text, tight in conditions]


class _Printer:
    def __init__(self, session, shared):
        self.session, self.ctes = session, {id(n): f"_shared_{i + 1}" for i, n in enumerate(shared)}

    def query(self, node, depth):
        """The node as a query."""
        pad = "\n" + "  " * depth
        if isinstance(node, Table):
            text = node.from_text(self.session)
            return text[1:-1] if text.startswith("(SELECT ") else f"SELECT *{pad}FROM {text}"
        if isinstance(node, Raw):
            return "".join(p.replace("\0", pad) if isinstance(p, str) and type(p) is str else
                           str(p) if isinstance(p, str) else self.source(p, depth) for p in node.parts)
        names = None
        if node.columns is not None and (node.input_names is not None or len(node.source) == 1):
            names = node.below(self.session)
        head = "SELECT " + ("" if node.distinct is None else f"DISTINCT {node.distinct}")
        out = [head + node.columns_text(names) + pad + "FROM "]
        out += [p.replace("\0", pad) if isinstance(p, str) else self.source(p, depth) for p in node.source]
        for word, items, between in (("WHERE", _all_of(node.where), " AND "), ("GROUP BY", [node.group] if node.group else [], ""),
                                     ("QUALIFY", _all_of(node.qualify), " AND "), ("ORDER BY", node.order, ", ")):
            if items:
                out.append(f"{pad}{word} {between.join(items)}")
        if node.limit is not None:
            out.append(f"{pad}LIMIT {node.limit}")
        if node.offset:
            out.append(f"{pad}OFFSET {node.offset}")
        return "".join(out)

    def source(self, node, depth):
        """The node as it stands behind FROM."""
        if id(node) in self.ctes:
            return self.ctes[id(node)]
        while isinstance(node, Select) and node.is_bare() and len(node.source) == 1 and id(node) not in self.ctes:
            node = node.source[0]
        if id(node) in self.ctes:
            return self.ctes[id(node)]
        if isinstance(node, Table):
            return node.from_text(self.session)
        pad = "\n" + "  " * (depth + 1)
        return f"({pad}{self.query(node, depth + 1)}\n{'  ' * depth})"


class Verbatim(str):
    """SQL text of the user: printed as it is."""


def to_sql(node, session):
    """The whole query."""
    try:
        return _whole(node, session)
    except RecursionError:
        raise invalid("the query has too many steps, one around the other: collect() somewhere in between") from None


def _whole(node, session):
    shared = [n for n in _shared(node) if n is not node]
    printer = _Printer(session, shared)
    ctes = []
    for n in shared:
        name = printer.ctes.pop(id(n))
        ctes.append(f"{name} AS (\n  {printer.query(n, 1)}\n)")
        printer.ctes[id(n)] = name
    text = printer.query(node, 0)
    return f"WITH {', '.join(ctes)}\n{text}" if ctes else text


def walk(root):
    """Every node, once."""
    seen, stack = set(), [root]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(node.children())


def describe(session, node):
    """Names and types of a query's columns, from its plan."""
    prepare(session, node)
    rows = session.execute(f"SELECT column_name, column_type FROM (DESCRIBE {to_sql(node, session)}\n)").arrow()
    return list(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist()))


def prepare(session, node):
    """Give the session what the query needs beside its text: users' functions."""
    for n in walk(node):
        for udf in n.udfs:
            udf.register(session)


# ---- names


def find(name, names):
    """The column of this name, as it is written there (without regard to case, as in SQL), or None."""
    if name in names:
        return name
    low = name.lower()
    return next((n for n in names if n.lower() == low), None)


def check(wanted, names, what=""):
    """Every one of the wanted names must be there."""
    known = set(names)
    for name in wanted:
        if name in known or find(name, names) is not None:
            continue
        raise invalid(f"there is no column {quote(name)}{what}{suggestion(name, names)}")


def suggestion(name, names):
    """Which names could have been meant."""
    lower = {n.lower(): n for n in reversed(names)}
    import difflib
    close = [lower[c] for c in difflib.get_close_matches(name.lower(), list(lower), n=3, cutoff=0.6)]
    part = re.split(r"[.\[]", name)[0]
    if part != name and find(part, names):
        return f"; a field of {quote(part)} is col({part!r}).struct.get(…)"
    if close:
        return f"; did you mean {' or '.join(quote(c) for c in close)}?"
    shown = ", ".join(quote(n) for n in names[:20])
    return f"; the columns are {shown}{', …' if len(names) > 20 else ''}" if names else "; there are no columns"


def check_unique(names):
    """No name twice, without regard to case."""
    seen = {}
    for n in names:
        if n.lower() in seen:
            other = seen[n.lower()]
            raise invalid(f"two columns would be called {quote(n)}: give one of them another name with .alias(…)" if other == n else
                          f"names of columns must differ in more than case: {quote(other)}, {quote(n)}")
        seen[n.lower()] = n
