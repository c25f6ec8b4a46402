# SPDX-License-Identifier: Apache-2.0
"""Real torch: tensors of batches, datasets in DataLoaders with and without workers of their own."""
import collections

import brant
import pytest
import torch
from brant import col
from brant import functions as f
from torch.utils.data import DataLoader, IterableDataset

ROWS = 5000


@pytest.fixture(scope="module", autouse=True)
def session():
    with brant.init(workers=2, threads=1, distribute="always") as s:
        yield s
    brant.shutdown()


@pytest.fixture(scope="module")
def df(session):
    return brant.range(ROWS).select(i="id", x=col("id") / 4, even=col("id") % 2 == 0, s=f.concat("s", col("id") % 10))


def test_batches_are_tensors(df):
    batches = list(df.select("i", "x", "even", small=col("i").cast("SMALLINT")).iter_batches(700, format="torch"))
    assert [len(b["i"]) for b in batches] == [700] * 7 + [100]
    assert {n: t.dtype for n, t in batches[0].items()} == {"i": torch.int64, "x": torch.float64, "even": torch.bool, "small": torch.int16}
    i = torch.cat([b["i"] for b in batches])
    assert torch.equal(i.sort().values, torch.arange(ROWS))
    for b in batches:
        assert torch.equal(b["x"], b["i"] / 4) and torch.equal(b["even"], b["i"] % 2 == 0)
    batches[0]["i"].add_(1)  # they are the caller's


def test_what_is_no_tensor_says_so(df):
    with pytest.raises(brant.Error, match='column s is no tensor'):
        list(df.iter_batches(format="torch"))


def test_a_loader_of_batches(df):
    """As in docs: the engine makes the batches, the loader hands them on, again in each epoch."""
    class Batches(IterableDataset):
        def __iter__(self):
            return df.select("i", "x").iter_batches(256, format="torch")

    loader = DataLoader(Batches(), batch_size=None)
    for _ in range(2):
        got = list(loader)
        assert len(got) == 20 and torch.equal(torch.cat([b["i"] for b in got]).sort().values, torch.arange(ROWS))


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_a_loader_of_rows(df, workers):
    """Each row once, whichever order the workers' queries have."""
    loader = DataLoader(df.to_torch_iter_dataset(), batch_size=64, num_workers=workers)
    for _ in range(2):
        ids, texts = [], collections.Counter()
        for batch in loader:
            assert len(batch["i"]) <= 64 and torch.equal(batch["x"], batch["i"] / 4)
            ids += batch["i"].tolist()
            texts.update(batch["s"])
        assert sorted(ids) == list(range(ROWS)) and texts == {f"s{k}": ROWS // 10 for k in range(10)}


def test_workers_share_groups_of_data_from_memory():
    big = brant.from_pydict({"k": [i % 1000 for i in range(20000)], "v": list(range(20000))})
    groups = big.group_by("k").agg(n=f.count(), most=col("v").max())
    rows = [r for b in DataLoader(groups.to_torch_iter_dataset(), batch_size=100, num_workers=2) for r in zip(b["k"].tolist(), b["most"].tolist())]
    assert sorted(rows) == [(k, 19000 + k) for k in range(1000)]


def test_workers_that_are_spawned(df):
    loader = DataLoader(df.where("i < 1000").to_torch_iter_dataset(), batch_size=50, num_workers=2, multiprocessing_context="spawn")
    assert sorted(i for b in loader for i in b["i"].tolist()) == list(range(1000))


def test_a_frame_of_a_session_of_its_own():
    with brant.Session(workers=1, distribute="never") as own:
        data = brant.range(100, session=own).to_torch_iter_dataset()
        assert sorted(int(r["id"]) for r in DataLoader(data, batch_size=None, num_workers=2)) == list(range(100))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_map_dataset_is_shuffled(df, workers):
    data = df.to_torch_map_dataset()
    assert len(data) == ROWS and data[-1] == data[ROWS - 1] and set(data[0]) == {"i", "x", "even", "s"}
    with pytest.raises(IndexError):
        data[ROWS]
    got = [i for b in DataLoader(data, batch_size=100, shuffle=True, num_workers=workers) for i in b["i"].tolist()]
    assert sorted(got) == list(range(ROWS)) and got != sorted(got)


def test_training():
    """y = 3 x - 2 is found from batches of a query."""
    torch.manual_seed(1)
    points = brant.range(4096).select(x=(col("id") / 2048 - 1).cast("FLOAT")).with_columns(y=(col("x") * 3 - 2).cast("FLOAT"))
    line = torch.nn.Linear(1, 1)
    steps = torch.optim.SGD(line.parameters(), lr=0.1)
    for _ in range(6):
        for batch in points.shuffle(seed=3).iter_batches(128, format="torch"):
            steps.zero_grad()
            torch.nn.functional.mse_loss(line(batch["x"][:, None]), batch["y"][:, None]).backward()
            steps.step()
    assert abs(line.weight.item() - 3) < 0.05 and abs(line.bias.item() + 2) < 0.05
