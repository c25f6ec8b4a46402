# SPDX-License-Identifier: Apache-2.0
"""Clauses put into one level of SELECT mean the same as one level each: random chains of methods, printed both ways, give the same rows."""
import os
import random

import brant
import pyarrow as pa
import pytest
from brant import col
from brant import functions as f
from brant.dataframe import DataFrame
from brant.plan import Select

CHAINS = int(os.environ.get("BRANT_CHAINS", "24"))


def one_step(rng, df):
    """A random method on columns that are there. `id` is unique and kept, so that cuts of sorted rows are determined."""
    names = [n for n in df.columns if n != "id"]
    a, b, new = rng.choice(names), rng.choice(names), rng.choice(["a", "b", "c", "x1", "x2", "Id2"])
    desc = rng.random() < 0.5
    keep = rng.sample(names, rng.randint(1, len(names)))
    if rng.random() < 0.3:
        rng.shuffle(keep)
    steps = [
        lambda: df.where(col(a) > rng.randint(-3, 9)),
        lambda: df.where((col(a) > rng.randint(0, 9)) | (col(b) < rng.randint(0, 9))),
        lambda: df.where(brant.sql_expr(f'"{a}" > 2 or "{b}" is null')),
        lambda: df.where(f.row_number().over(a, order_by=["id"]) <= rng.randint(1, 30)),
        lambda: df.select("id", *keep),
        lambda: df.select(*keep, "id", **({} if new in keep else {new: col(a) + col(b)})),
        lambda: df.rename({a: b, b: a}) if a != b else df,
        lambda: df.with_columns({new: col(a) - 1}),
        lambda: df.with_columns({new: col(a) * 2, b: col(a) + 1}) if new.lower() != b.lower() else df,
        lambda: df.with_columns({new: col(a).sum().over(b)}),
        lambda: df.with_columns({new: f.count().over(order_by="id")}),
        lambda: df.with_columns({new: brant.sql_expr(f'"{a}" + "{b}"')}),
        lambda: df.sort(col(a).desc() if desc else a, "id"),
        lambda: df.sort(col(a) + col(b), "id", desc=desc),
        lambda: df.sort(a, "id").limit(rng.randint(0, 40)),
        lambda: df.sort("id").offset(rng.randint(0, 9)),
        lambda: df.sort("id", desc=desc).limit(30).offset(rng.randint(0, 3)).limit(20),
        lambda: df.sort("id").limit(rng.randint(5, 40)),
        lambda: df.sort(a, "id").select("id", **{a: col(b), b: col(a)}).limit(9) if a != b else df,
        lambda: df.sort(a, "id").with_columns({a: -col(a)}).limit(9),
        lambda: df.distinct(),
        lambda: df.exclude(a) if len(names) > 2 else df,
        lambda: df.group_by("id").agg(col(a).max(), **({} if b.lower() == a.lower() else {b: col(b).min()})),
        lambda: df.group_by("id", (col(a) % 3).alias("m" + new)).agg(f.count().alias("n" + new)),
        lambda: df.with_columns({new: f.list_value(col(a), col(b)).explode()}).sort(new, "id").group_by("id").agg(col(new).min(), z=col(a).max())
        if new.lower() not in (a.lower(), "z") and a.lower() != "z" else df,
        lambda: df.join(df.where(col(a) > 3).select("id"), on="id", how=rng.choice(["semi", "anti", "left"])),
        lambda: df.join(df.select("id", a), on="id").rename(lambda n: n.replace("_right", "r")) if not any(n == a + "r" for n in names) else df,
        lambda: df.union_all_by_name(df.where(col(a) > 50)),
    ]
    return rng.choice(steps)()


def chain(seed, session):
    rng = random.Random(seed)
    n = 50
    columns = {k: [rng.choice([None, *range(10)]) for _ in range(n)] for k in "abc"}
    df = brant.from_pydict({"id": list(range(n)), **columns}, session=session)
    for _ in range(rng.randint(2, 8)):
        df = one_step(rng, df)
    return df


@pytest.fixture(scope="module")
def here():
    with brant.Session(distribute="never") as s:
        yield s


def run(df):
    """Names, and the rows in an order of their own."""
    t = df.to_arrow()
    wide = pa.schema([(x.name, pa.int64() if pa.types.is_decimal(x.type) else x.type) for x in t.schema])
    return t.column_names, sorted(map(repr, t.cast(wide).to_pylist()))


@pytest.mark.parametrize("part", range(6))
def test_chains(here, monkeypatch, part):
    for seed in range(part, CHAINS, 6):
        merged = chain(seed, here)
        with monkeypatch.context() as m:
            m.setattr(DataFrame, "_level", lambda self, *closed: Select([self._node]))
            m.setattr(DataFrame, "_merging_level", lambda self, exprs, new: None)
            apart = chain(seed, here)
            want = run(apart)
            assert apart.columns == want[0]
        assert merged.columns == want[0]
        assert run(merged) == want, f"seed {seed}\n{merged.sql()}\n\n{apart.sql()}"
