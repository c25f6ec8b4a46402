# SPDX-License-Identifier: Apache-2.0
"""How frames look: a small table in a terminal or a notebook."""

import sys

CELL_CHARACTERS = 32
LEAST_COLUMNS = 3
CELL_SOURCE_CHARACTERS = 4096


class Schema(dict):
    """Names of columns and DuckDB's names of their types, in order."""

    def __repr__(self):
        return schema_text(self)

    @property
    def names(self) -> list[str]:
        """The names."""
        return list(self)

    @property
    def types(self) -> list[str]:
        """The types."""
        return list(self.values())


class Text(str):
    """Text that shows itself as it is at a prompt."""

    def __repr__(self):
        return str(self)


class Preview:
    """Some rows, with the types of their columns. total: how many rows there are; None: more than these. truncate: characters of a value that
    are seen; True: some, False: all."""

    def __init__(self, table, types, total=None, truncate=True):
        self.table, self.types, self.total = table, types, total
        self.whole = truncate is False
        self.most = CELL_CHARACTERS if truncate is True else max(1, int(truncate)) if truncate else sys.maxsize

    def _cells(self):
        return [[_cell(v, self.whole) for v in c.to_pylist()] for c in self.table.columns]

    def footer(self):
        """How much is seen."""
        n = self.table.num_rows
        if self.total is None:
            return f"(first {n} rows)"
        return f"({self.total:,} row{'' if self.total == 1 else 's'}{f', first {n}' if n < self.total else ''})"

    def __str__(self):
        names = [_cut(_line(n), self.most) for n in self.table.column_names]
        columns = [[n, _cut(t, self.most), *(_cut(c, self.most) for c in cells)] for n, t, cells in zip(names, self.types, self._cells())]
        widths = [max(map(_width, c)) for c in columns]
        columns, widths, left_out = (columns, widths, 0) if self.whole else _fitted(columns, widths)
        if not columns:
            return f"(no columns)\n{self.footer()}"
        rule = lambda a, b, c: a + b.join("─" * (w + 2) for w in widths) + c  # noqa: E731
        rows = ["│" + "│".join(f" {c}{' ' * (w - _width(c))} " for c, w in zip(row, widths)) + "│" for row in zip(*columns)]
        note = f"\n({left_out} more column{'' if left_out == 1 else 's'})" if left_out else ""
        return "\n".join([rule("╭", "┬", "╮"), rows[0], rows[1], rule("├", "┼", "┤"), *rows[2:], rule("╰", "┴", "╯"), self.footer()]) + note

    __repr__ = __str__

    def html(self):
        """As an HTML table."""
        head = "".join(f"<th>{_escape(n)}<br><small>{_escape(t)}</small></th>" for n, t in zip(self.table.column_names, self.types))
        cells = self._cells()
        body = "".join("<tr>" + "".join(f"<td>{_escape(_cut(c, 200))}</td>" for c in row) + "</tr>" for row in zip(*cells))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><small>{_escape(self.footer())}</small>"

    _repr_html_ = html


def _escape(text):
    import html
    return html.escape(text)


def _fitted(columns, widths):
    """The columns that fit into the terminal, the last one too, and how many do not."""
    import shutil
    room = max(40, shutil.get_terminal_size((120, 24)).columns)
    n = len(columns)
    if sum(widths) + 3 * n + 1 <= room or n <= LEAST_COLUMNS:
        return columns, widths, 0
    used, keep = widths[-1] + 8, 0
    while keep < n - 2 and used + widths[keep] + 3 <= room:
        used += widths[keep] + 3
        keep += 1
    keep = max(keep, 1)
    dots = ["…"] * len(columns[0])
    return columns[:keep] + [dots] + columns[-1:], widths[:keep] + [1] + widths[-1:], n - keep - 1


def schema_text(schema):
    """A schema as a table of names and types."""
    if not schema:
        return "(no columns)"
    names = [_line(n) for n in schema]
    width = max(map(_width, names))
    return "\n".join(f"{n}{' ' * (width - _width(n))}  {t}" for n, t in zip(names, schema.values()))


def schema_html(schema):
    """A schema as an HTML table."""
    rows = "".join(f"<tr><td>{_escape(n)}</td><td>{_escape(t)}</td></tr>" for n, t in schema.items())
    return f"<table><thead><tr><th>column</th><th>type</th></tr></thead><tbody>{rows}</tbody></table><small>(not run yet: show(), collect())</small>"


def _cell(value, whole=False):
    most = None if whole else CELL_SOURCE_CHARACTERS
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return _line(value, most)
    if isinstance(value, (bytes, bytearray)):
        return _line(repr(bytes(value[:most])), most)
    if isinstance(value, float):
        return f"{value:.10g}" if value == value else "nan"
    if isinstance(value, (list, dict, tuple)):
        return _line(str(value), most)
    return str(value)


def _line(text, most=CELL_SOURCE_CHARACTERS):
    """On one line, without control characters."""
    return "".join(c if c.isprintable() else {"\n": "⏎", "\t": "⇥"}.get(c, "·") for c in text[:most])


def _cut(text, most=CELL_CHARACTERS):
    if _width(text) <= most:
        return text
    out, used = [], 0
    for c in text:
        used += _width(c)
        if used > most - 1:
            break
        out.append(c)
    return "".join(out) + "…"


def _width(text):
    """Cells of a terminal."""
    if text.isascii():
        return len(text)
    import unicodedata
    return sum(0 if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Cf") else 2 if unicodedata.east_asian_width(c) in "WF" else 1
               for c in text)
