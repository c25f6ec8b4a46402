# SPDX-License-Identifier: Apache-2.0
"""Files of queries for the differential tests (tests/sql/queries/*.sql), and one-process DuckDB as the judge.

A statement ends with ";" at a line's end. The comment line above it says what is expected, fields parted by " | ":
  N stages          the stages of the plan in the default configuration (for every query)
  ordered           rows in DuckDB's order; the ORDER BY must be total
  one-task: R       a stage runs as one task because of R (text in the reason); "; " parts several. Last steps of something that was
                    spread before (EXPECTED below) need no mention, everything else does
  whole: R          the whole query runs as one task of its own text
  local: R          it runs in the caller's process
  set: NAME=VALUE   a setting for this query alone; may be repeated
  two-step          also runs with two_step_aggregate=false (as every query with GROUP BY or an aggregate does)
  only: A, B        runs in these configurations alone (it is slow)
  shape             only the types and the number of rows agree: values are random
  fails: TEXT       both fail, and the error of brant holds TEXT
A statement that is no query (CREATE VIEW, …) is run on both sides before the file's first query. "@/" is the folder of files.py.
Comments that begin with "-- #" are for people.

`python tests/lib/queries.py fill FILE…` writes the fields of queries whose comment is "-- ?" (to be checked by a person), and
`… try "select …"` shows both results.
"""
import dataclasses
import json
import pathlib
import re
import sys

import compare
import files

# last steps of what was spread before: reasons that no query needs to list
EXPECTED = ("final step of an aggregate without GROUP BY", "merge of the tasks' top rows", "rows are counted across tasks",
            "few rows to sort", "small files", "bounds of the sort's ranges", "constant rows only",
            "bounds of ranges with copies", "the rows next to each range")
OWN = ("partitions", "broadcast_bytes", "small_bytes", "sort_one_task_rows", "split_bytes", "two_step_aggregate", "shuffle_compression")
PLAIN = re.compile(r"(BOOLEAN|U?(TINY|SMALL|BIG)INT|U?INTEGER|FLOAT|DOUBLE|VARCHAR)$")


@dataclasses.dataclass
class Query:
    sql: str
    file: str
    line: int
    stages: int = None
    ordered: bool = False
    shape: bool = False
    two_step: bool = False
    one_task: tuple = ()
    whole: str = None
    local: str = None
    fails: str = None
    settings: dict = dataclasses.field(default_factory=dict)
    only: tuple = ()
    unknown: bool = False

    def apply(self, fields):
        for f in (x.strip() for x in fields.split(" | ")):
            name, _, value = f.partition(":")
            value = value.strip()
            if re.match(r"\d+ stages?$", f):
                self.stages = int(f.split()[0])
            elif f in ("ordered", "shape"):
                setattr(self, f, True)
            elif f == "two-step":
                self.two_step = True
            elif name == "one-task":
                self.one_task = tuple(value.split("; "))
            elif name in ("whole", "local", "fails"):
                setattr(self, name, value)
            elif name == "set":
                self.settings[value.partition("=")[0]] = value.partition("=")[2]
            elif name == "only":
                self.only = tuple(x.strip() for x in value.split(","))
            elif f == "?":
                self.unknown = True
            else:
                raise ValueError(f"{self.file}:{self.line}: what is {f!r}?")


def read(path):
    """(setup statements, queries) of one file."""
    setup, queries, lines, comment, begin = [], [], [], None, 0
    for n, line in enumerate(pathlib.Path(path).read_text().split("\n"), 1):
        if not lines and (not line.strip() or line.startswith("-- #")):
            continue
        if not lines and line.startswith("--"):
            if line.startswith("-- SPDX"):
                continue
            comment = line[2:].strip()
            continue
        begin = begin if lines else n
        lines.append(line)
        if not line.endswith(";"):
            continue
        sql = "\n".join(lines)[:-1].replace("@/", f"{files.folder()}/")
        lines = []
        if comment is None:
            setup.append(sql)
            continue
        q = Query(sql, pathlib.Path(path).stem, begin)
        q.apply(comment)
        queries.append(q)
        comment = None
    if lines:
        raise ValueError(f"{path}: the last statement has no semicolon")
    return setup, queries


def no_enums(type_name):
    """Enums come back as dictionaries of texts (tests/sql/test_enums.py), which DuckDB reads as VARCHAR; HUGEINT as DECIMAL(38,0).
    Wherever they are inside a type."""
    return re.sub(r"\bHUGEINT\b", "DECIMAL(38,0)", re.sub(r"ENUM\((?:'(?:[^']|'')*'(?:, )?)*\)", "VARCHAR", type_name))


@dataclasses.dataclass
class Result:
    names: list
    types: list
    rows: list


class Duck:
    """One-process DuckDB: runs the query itself, and reads anybody's Arrow result the same way."""

    def __init__(self):
        import duckdb
        self.error = duckdb.Error
        self.con = duckdb.connect(config={"threads": 2})
        self.con.execute("SET TimeZone = 'UTC'")
        self.con.execute("SET arrow_lossless_conversion = true")
        self.con.execute("SET arrow_output_version = '1.5'")
        self.known = {}

    def execute(self, sql):
        self.con.execute(sql)

    def read(self, table, types=None):
        """A pyarrow.Table as Result: what Python can't hold, or compares by its own rules, as DuckDB's text."""
        names = table.column_names
        renamed = table.rename_columns([f"c{i}" for i in range(len(names))])
        self.con.register("arrow_result", renamed)
        try:
            got = [no_enums(r[1]) for r in self.con.execute("DESCRIBE SELECT * FROM arrow_result").fetchall()]
            cells = [f"c{i}" if PLAIN.match(t) else f"CAST(c{i} AS VARCHAR)" for i, t in enumerate(got)]
            rows = self.con.execute(f"SELECT {', '.join(cells)} FROM arrow_result").fetchall()
        finally:
            self.con.unregister("arrow_result")
        return Result(names, types or got, rows)

    def answer(self, query):
        """The Result of a Query; kept, since several configurations are compared with it."""
        key = (query.sql, tuple(query.settings.items()))
        if key not in self.known:
            settings = {k: v for k, v in query.settings.items() if k not in OWN}
            for k, v in settings.items():
                self.con.execute(f"SET {k} = '{v}'")
            try:
                types = None
                if not query.sql.startswith(("DESCRIBE", "SUMMARIZE", "SHOW")):
                    types = [no_enums(r[1]) for r in self.con.execute(f"DESCRIBE {query.sql}").fetchall()]
                table = self.con.execute(query.sql).to_arrow_table()
            finally:
                for k in settings:
                    self.con.execute("SET TimeZone = 'UTC'" if k == "TimeZone" else f"RESET {k}")
            self.known[key] = self.read(table, types)
        return self.known[key]


def difference(got, want, ordered, shape=False):
    """None, or one line: names, types, then rows."""
    if got.names != want.names:
        return f"columns {got.names} instead of {want.names}"
    if got.types != want.types:
        return f"types {got.types} instead of {want.types}"
    if shape:
        return None if len(got.rows) == len(want.rows) else f"{len(got.rows)} rows instead of {len(want.rows)}"
    return compare.difference(got.rows, want.rows, ordered)


def difference_to_duckdb(session, duck, text):
    """None, or one line: a query of TPC-H or TPC-DS, rows in order. Where ties lie under its last LIMIT other rows may come: then the same
    query without this LIMIT must give the same rows."""
    want = duck.answer(Query(text, "", 0))
    diff = difference(duck.read(session.run(text)[0]), want, ordered=True)
    return diff and without_limit(session, duck, text)


def without_limit(session, duck, text):
    text = re.sub(r"\s+LIMIT\s+\d+\s*;?\s*$", "", text.rstrip(), flags=re.I)
    return difference(duck.read(session.run(text)[0]), duck.answer(Query(text, "", 0)), ordered=False)


def surprises(plan, query):
    """What of a plan (explain's JSON) is not as the query's comment says; a list of lines."""
    out = []
    if plan.get("local"):
        if query.local is None or query.local not in plan["reason"]:
            out.append(f"runs in this process: {plan['reason']}")
        return out
    if query.local is not None:
        out.append(f"is distributed, and not run in this process ({query.local})")
    reason = plan.get("whole_query_reason")
    if (reason is None) != (query.whole is None) or (reason and query.whole not in reason):
        out.append(f"whole query as one task: {reason}; expected: {query.whole}")
    if query.stages != len(plan["stages"]):
        out.append(f"{len(plan['stages'])} stages instead of {query.stages}")
    if reason is None:
        reasons = [s["one_task_reason"] for s in plan["stages"] if s["one_task_reason"]]
        for r in reasons:
            if not any(e in r for e in EXPECTED + query.one_task):
                out.append(f"a stage is one task: {r}")
        for e in query.one_task:
            if not any(e in r for r in reasons):
                out.append(f"no stage is one task because of: {e}")
    return out


def fields_of(plan, old):
    """The comment of a query from its plan."""
    if plan.get("local"):
        return f"local: {plan['reason']}"
    out = [f"{len(plan['stages'])} stage{'s' if len(plan['stages']) != 1 else ''}"]
    if old.ordered:
        out.append("ordered")
    if plan.get("whole_query_reason"):
        return " | ".join(out + [f"whole: {plan['whole_query_reason']}"])
    reasons = dict.fromkeys(s["one_task_reason"] for s in plan["stages"] if s["one_task_reason"])
    listed = [r for r in reasons if not any(e in r for e in EXPECTED)]
    return " | ".join(out + ([f"one-task: {'; '.join(listed)}"] if listed else []))


def _open():
    import brantlib
    files.make()
    root = pathlib.Path(__file__).resolve().parents[1] / "sql" / "queries"
    s = brantlib.Session(workers=3, threads=1, distribute="always", settings={"TimeZone": "UTC"})
    duck = Duck()
    common = read(root / "common.sql")[0] if (root / "common.sql").is_file() else []
    for sql in common:
        s.run(sql)
        duck.execute(sql)
    return s, duck


def _fill(paths):
    s, _ = _open()
    with s:
        for path in map(pathlib.Path, paths):
            setup, queries = read(path)
            for sql in setup:
                s.run(sql)
            lines = path.read_text().split("\n")
            for q in queries:
                at = q.line - 2
                if not lines[at].startswith("-- ?"):
                    continue
                for k, v in q.settings.items():
                    s.set(k, v)
                try:
                    rest = [f for f in lines[at][2:].strip().split(" | ") if f not in ("?", "ordered")]
                    lines[at] = " | ".join(["-- " + fields_of(json.loads(s.explain(q.sql, False, True)), q)] + rest)
                except Exception as e:  # noqa: BLE001: shown to the person who fills
                    print(f"{path}:{q.line}: {e}")
                for k in q.settings:
                    s.run("SET TimeZone = 'UTC'" if k == "TimeZone" else f"RESET {k}")
            path.write_text("\n".join(lines))


def _try(texts):
    s, duck = _open()
    with s:
        for sql in texts:
            sql = sql.replace("@/", f"{files.folder()}/")
            print(s.explain(sql))
            got = duck.read(s.run(sql)[0])
            want = duck.answer(Query(sql, "", 0))
            print(got.types, *got.rows[:20], "--", want.types, *want.rows[:20], sep="\n")
            print(difference(got, want, False))


if __name__ == "__main__":
    {"fill": _fill, "try": _try}[sys.argv[1]](sys.argv[2:])
