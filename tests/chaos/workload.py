# SPDX-License-Identifier: Apache-2.0
"""Queries of the chaos tests and what their answers are compared with: DuckDB's, by count and by content.

A small result is compared value by value (floats within 1e-9); a large one, which has no floats, as it is when the query orders it,
else by its count and the sum of the hashes of its rows.
"""
import dataclasses
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import compare  # noqa: E402
import tpch  # noqa: E402

SMALL_ROWS = 20_000
# Everything is shuffled, in many tasks, in several partitions: many places where something can be lost.
WIDE = {"broadcast_bytes": "0", "two_step_aggregate": "false", "sort_one_task_rows": "0", "partitions": "8", "split_bytes": "1MB",
        "sorted_scans": "false"}


@dataclasses.dataclass
class Query:
    name: str
    sql: str
    ordered: bool = False
    settings: dict = dataclasses.field(default_factory=dict)
    indeterminate: bool = False  # on the way, not in its answer


def _own():
    lines = "select l_orderkey, l_linenumber, l_partkey, l_suppkey, l_comment"
    return [
        Query("map", f"{lines} from lineitem where l_orderkey % 5 = 0", settings=WIDE),
        Query("group", "select l_orderkey, count(*) as n, sum(l_quantity) as q, max(l_comment) as c from lineitem group by all", settings=WIDE),
        Query("join", "select o_custkey, o_orderpriority, l_comment, l_quantity from orders join lineitem on o_orderkey = l_orderkey "
              "where l_linenumber < 3", settings=WIDE),
        Query("outer", "select c_custkey, o_orderkey, o_comment, o_totalprice from customer full join (select * from orders where "
              "o_orderkey % 3 = 0) on c_custkey = o_custkey", settings=WIDE),
        Query("sort", f"{lines} from lineitem where l_orderkey % 3 = 0 order by l_comment, l_orderkey, l_linenumber", True, WIDE, indeterminate=True),
        Query("window", "select l_orderkey, l_linenumber, rank() over w as r, sum(l_quantity) over w as q, lag(l_comment) over w as c "
              "from lineitem where l_orderkey % 3 = 0 window w as (partition by l_suppkey order by l_shipdate, l_orderkey, l_linenumber)",
              settings=WIDE),
        Query("distinct", "select distinct l_partkey, l_suppkey, l_shipmode from lineitem", settings=WIDE),
        Query("union", "select c_nationkey as k, count(*) as n from (select c_nationkey, c_comment from customer union all select "
              "s_nationkey, s_comment from supplier union all select l_suppkey % 100, l_comment from lineitem) group by all", settings=WIDE),
        Query("chain", "select m, count(*) as n, sum(s) as s from (select k % 1000 as m, sum(n) as s from (select l_orderkey as k, "
              "count(*) as n, max(l_comment) as c from lineitem group by all) group by all) join (select distinct o_custkey % 1000 as d "
              "from orders) on m = d group by all", settings=WIDE),
        # Larger than what one worker keeps in memory.
        Query("spill", "select l_orderkey * 12 + i as k, max(l_comment) as c, count(*) as n from lineitem, range(12) r(i) "
              "where l_orderkey % 2 = 0 group by all", settings={**WIDE, "partitions": "16"}),
        # Which row is in which partition is another one each time; the sums over all partitions are not, unless rows are lost or doubled.
        Query("random", "select sum(n) as n, sum(d) as d, sum(h)::varchar as h from (select k, count(*) as n, count(distinct id) as d, "
              "sum(hash(id)::hugeint) as h from (select l_orderkey * 8 + l_linenumber as id, (random() * 200)::int as k from lineitem) "
              "group by k)", settings=WIDE, indeterminate=True),
    ]


TPCH = (1, 3, 4, 5, 7, 8, 9, 10, 12, 13, 16, 17, 18, 20, 21, 22)
INDETERMINATE_TPCH = {1, 8, 14, 17, 22, 15}  # averages of doubles or ties


def all_queries():
    """{name: Query}"""
    found = {q.name: q for q in _own()}
    texts = tpch.queries()
    for nr in TPCH:
        found[f"q{nr}"] = Query(f"q{nr}", texts[nr], True, WIDE if nr % 2 else {**WIDE, "broadcast_bytes": "32MiB"}, indeterminate=True)
    return found


class Answers:
    """One DuckDB over the same files; answers are kept."""

    def __init__(self, scale="0.1"):
        import duckdb
        tpch.make_data(scale)
        self.con = duckdb.connect(config={"threads": 2})
        for v in tpch.views(scale):
            self.con.execute(v)
        self.con.execute("SET arrow_lossless_conversion = true")
        self.views, self._known = tpch.views(scale), {}

    def _digest(self, table):
        renamed = table.rename_columns([f"c{i}" for i in range(table.num_columns)])
        self.con.register("digested", renamed)
        try:
            cells = ", ".join(f"CAST(c{i} AS VARCHAR)" for i in range(table.num_columns))
            return self.con.execute(f"SELECT count(*), sum(hash({cells})::HUGEINT) FROM digested").fetchone()
        finally:
            self.con.unregister("digested")

    def _read(self, query, table):
        if table.num_rows <= SMALL_ROWS:
            return compare.rows_of(table)
        return table.num_rows, self._digest(table), table if query.ordered else None

    def right(self, query):
        if query.sql not in self._known:
            self._known[query.sql] = self._read(query, self.con.execute(query.sql).to_arrow_table())
        return self._known[query.sql]

    def difference(self, query, table):
        """None, or in which way this answer isn't right."""
        want, got = self.right(query), self._read(query, table)
        if isinstance(want, list) or isinstance(got, list):
            if not isinstance(got, list) or not isinstance(want, list):
                return f"{table.num_rows} rows instead of {len(want) if isinstance(want, list) else want[0]}"
            return compare.difference(got, want, query.ordered)
        if got[0] != want[0]:
            return f"{got[0]} rows instead of {want[0]}"
        if got[1] != want[1]:
            return f"{got[0]} rows as wanted, but others: digest {got[1][1]} instead of {want[1][1]}"
        if query.ordered and not _same_order(got[2], want[2]):
            return f"the right {got[0]} rows in another order"
        return None


def _same_order(got, want):
    for a, b in zip(got.columns, want.columns):
        if a.type != b.type:
            a = a.cast(b.type)
        if not a.equals(b):
            return False
    return True
