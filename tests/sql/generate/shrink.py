# SPDX-License-Identifier: Apache-2.0
"""Makes a failing statement small: DuckDB's own parse tree (json_serialize_sql) with parts left out or replaced by a part of themselves,
as long as `fails(text)` says that it still fails in the same way."""
import copy
import json

EMPTY = {"where_clause": None, "having": None, "qualify": None, "filter": None, "start_expr": None, "end_expr": None, "condition": None}
LISTS = ("select_list", "modifiers", "orders", "group_expressions", "children", "partitions", "arg_orders", "distinct_on_targets", "expressions", "values",
         "case_checks", "using_columns", "map", "limit", "offset")


def kind(node):
    if not isinstance(node, dict):
        return None
    if "cte_map" in node and "modifiers" in node:
        return "query"
    if "class" in node:
        return "expression"
    if "alias" in node and "sample" in node:
        return "table"
    return None


def _walk(node, path=()):
    yield path, node
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for k, v in items:
        if isinstance(v, (dict, list)):
            yield from _walk(v, path + (k,))


def _get(tree, path):
    for k in path:
        tree = tree[k]
    return tree


def _with(tree, path, value):
    if not path:
        return value
    out = copy.copy(tree)
    out[path[0]] = _with(tree[path[0]], path[1:], value)
    return out


def _inside(node, what, depth=0):
    """The nearest nodes of the same kind below."""
    items = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for v in items:
        if kind(v) == what:
            yield v
        elif isinstance(v, (dict, list)) and depth < 6:
            yield from _inside(v, what, depth + 1)


def candidates(tree):
    """Smaller trees, the boldest steps first."""
    nodes = list(_walk(tree))
    for path, node in nodes:
        what = kind(node)
        if what in ("query", "table") and path:
            for inner in _inside(node, what):
                yield _with(tree, path, inner)
        if isinstance(node, dict):
            for key, value in EMPTY.items():
                if node.get(key) is not None:
                    yield _with(tree, path + (key,), value)
        if isinstance(node, list) and path and path[-1] in LISTS and node:
            if len(node) > 3:
                yield _with(tree, path, node[:len(node) // 2])
                yield _with(tree, path, node[len(node) // 2:])
            for i in range(len(node)):
                yield _with(tree, path, node[:i] + node[i + 1:])
    for path, node in nodes:
        if kind(node) == "expression":
            for inner in _inside(node, "expression"):
                inner = copy.copy(inner)
                inner["alias"] = node.get("alias", "")
                yield _with(tree, path, inner)


def shrink(con, sql, fails, tries=600):
    """The smallest statement found, at most `tries` runs of fails()."""
    def parse(text):
        return json.loads(con.execute("SELECT json_serialize_sql(?)", [text]).fetchone()[0])

    def text_of(tree):
        try:
            return con.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchone()[0]
        except Exception:  # noqa: BLE001: a tree that is no statement
            return None
    tree = parse(sql)
    if tree.get("error") or not fails(text_of(tree) or ""):
        return sql
    best, again, seen = text_of(tree), True, set()
    while again and tries > 0:
        again = False
        for candidate in candidates(tree):
            text = text_of(candidate)
            if text is None or len(text) >= len(best) or text in seen:
                continue
            seen.add(text)
            tries -= 1
            if fails(text):
                tree, best, again = candidate, text, True
                break
            if tries <= 0:
                break
    return best
