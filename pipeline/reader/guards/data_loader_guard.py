"""Errors for those uses of torch's DataLoader in which a reader would deliver wrong buckets.

This module does not import torch.
"""

from __future__ import annotations

import sys
from typing import Final

_TORCH: Final = "torch.utils.data"


class DataLoaderError(TypeError):
    """A DataLoader uses a reader as its dataset, or its workers would repeat buckets."""


def refuse_data_loader() -> None:
    """Refuse calls from torch's DataLoader. Call this function first in a reader's method.

    Raises:
        DataLoaderError: a DataLoader called the method.
    """
    module = sys._getframe(2).f_globals.get("__name__", "")
    if module.startswith(_TORCH):
        raise read_by_number()


def read_by_number() -> DataLoaderError:
    """Return the error for a DataLoader that reads a reader's buckets by number."""
    return DataLoaderError(
        "do not pass a reader to a DataLoader, which reads buckets by number, in stored order, and "
        "gives all of them to every rank: iterate over the reader itself (for bucket in reader), "
        "or pass ShardDataset(url) to the DataLoader. To read by number in a DataLoader, pass a "
        "dataset of your own whose __getitem__ returns reader[n]"
    )


def repeating_workers(world_size: int) -> DataLoaderError | None:
    """Return an error if this process is one of several workers of a DataLoader, and world_size
    does not count these workers as ranks. Otherwise return None."""
    module = sys.modules.get(_TORCH)
    info = None if module is None else module.get_worker_info()
    if info is None or world_size % info.num_workers == 0:
        return None
    return DataLoaderError(
        f"this process is one of {info.num_workers} workers of a DataLoader, and the reader has "
        f"world_size {world_size}, so the workers would deliver the same buckets: use "
        "ShardDataset, or no workers (num_workers=0), or open the reader with "
        "rank=worker * world_size + rank and world_size=world_size * num_workers"
    )
