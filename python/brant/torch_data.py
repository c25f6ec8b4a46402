# SPDX-License-Identifier: Apache-2.0
"""torch datasets over DataFrames; imported when they are asked for."""
import torch.utils.data as _data


class _Rows(_data.IterableDataset):
    def __init__(self, frame):
        self._frame = frame

    def __iter__(self):
        worker = _data.get_worker_info()
        if worker is None:
            yield from self._frame.iter_rows()
            return
        from brant.dataframe import DataFrame
        from brant.expr import call, col
        frame = DataFrame(self._frame._node)  # a DataLoader's worker is another process: it runs in the default session there
        # by what a row is, not by its place: the others may get the rows in another order
        yield from frame.where(call("hash", *map(col, frame.columns)) % worker.num_workers == worker.id).iter_rows()


class _Table(_data.Dataset):
    def __init__(self, table):
        self._table = table

    def __len__(self):
        return self._table.num_rows

    def __getitem__(self, i):
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        return self._table.slice(i % len(self), 1).to_pylist()[0]


def iterable(frame):
    """See DataFrame.to_torch_iter_dataset."""
    return _Rows(frame)


def mapping(frame):
    """See DataFrame.to_torch_map_dataset."""
    return _Table(frame.to_arrow().combine_chunks())
