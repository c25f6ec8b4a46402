# SPDX-License-Identifier: Apache-2.0
"""torch datasets over DataFrames; imported when they are asked for."""
import torch.utils.data as _data


class _Rows(_data.IterableDataset):
    def __init__(self, frame):
        self._frame = frame

    def __iter__(self):
        worker = _data.get_worker_info()
        for i, row in enumerate(self._frame.iter_rows()):
            if worker is None or i % worker.num_workers == worker.id:
                yield row


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
