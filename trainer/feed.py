"""Feed of rows. A row is one or several merged buckets: the input of one micro-batch.

The host writes each row into pinned memory. A single copy moves the row to the device while the
device computes earlier rows. All rows have the same address on the device, so that one CUDA graph
can read all rows.

The pinned memory is a ring of three stages (one row each). Therefore the host is at most three rows
ahead of the device.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.reader import Mixture, ShardReader
from schemas.shard import Bucket
from schemas.vocabulary import ESM2
from trainer.model.esm2 import SequenceLayout

RING: Final = 3
_ALIGNMENT: Final = 256
"""Alignment of the parts of a row, in bytes. Kernels are faster on aligned pointers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """k merged buckets of T tokens in total, on the device.

    input_ids: uint8[T], token ids.
    sequences: boundaries of the sequences in the row.
    positions: int64[k], positions of the buckets in the global order.
    counts: int64[2], number of tokens and Σ length² over the sequences, both without padding.
    """

    input_ids: Tensor
    sequences: SequenceLayout
    positions: Tensor
    counts: Tensor


class Feed:
    """Endless iterator over this rank's rows.

    Each row overwrites the previous one. The copy is queued on the CUDA stream after the kernels
    that read the previous row.

    waited: seconds so far in which the device may have waited for rows. The host's time for a row
        (reading, copying into pinned memory) counts if the device had finished all its work when
        the row was ready.
    spent: seconds so far that the host spent on rows. The device mostly computed meanwhile.
    """

    def __init__(
        self, reader: ShardReader | Mixture, *, buckets: int, stride: int, device: torch.device
    ) -> None:
        """Args:
        buckets: number of buckets to merge into one row.
        stride: difference between the positions of this rank's consecutive buckets.
        """
        self._rows: Iterator[Bucket] = reader.batches(buckets) if buckets > 1 else reader
        self._places = np.arange(buckets, dtype=np.int64) * stride
        self._copier = RowCopier(device)
        self._launched = torch.cuda.Event() if device.type == "cuda" else None
        self.waited = self.spent = 0.0

    def __next__(self) -> Row:
        if self._launched is not None:
            self._launched.record()  # completes when the device has done all work queued so far
        started = time.perf_counter()
        bucket = next(self._rows)
        received_at = time.perf_counter()
        # This wait for the device is not counted: the device still computes earlier rows.
        self._copier.wait()
        free = time.perf_counter()
        row = self._copier.copy(bucket, bucket.position + self._places)
        spent = received_at - started + time.perf_counter() - free
        self.spent += spent
        if self._launched is None or self._launched.query():
            self.waited += spent
        return row

    def __iter__(self) -> Iterator[Row]:
        return self


class RowCopier:
    """Copies buckets through a ring of pinned memory into one row of device memory. The row holds
    positions, counts, cu_seqlens and tokens.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stages: list[_Stage] = []
        self._turn = 0
        self._row: Row | None = None

    def wait(self) -> None:
        """Wait until the device has received the row whose stage the next row will overwrite."""
        if self._stages:
            self._stages[self._turn].wait()

    def copy(self, bucket: Bucket, positions: NDArray[np.int64]) -> Row:
        """Start to copy the bucket to the device. Always return the same Row object.

        The copy may still run when this returns. Kernels launched later on the same stream see the
        new content.
        """
        if self._row is None:
            self._row = self._allocate_row(bucket, positions.size)
        stage = self._stages[self._turn]
        self._turn = (self._turn + 1) % len(self._stages)
        stage.positions[:] = positions
        stage.counts[:] = bucket.num_tokens, _squares(bucket, positions.size)
        stage.cu_seqlens[:] = bucket.cu_seqlens
        stage.input_ids[:] = bucket.input_ids
        stage.copy_to(self._memory)
        return self._row

    def _allocate_row(self, bucket: Bucket, buckets: int) -> Row:
        sizes = [8 * buckets, 8 * 2, bucket.cu_seqlens.nbytes, bucket.input_ids.nbytes]
        on_gpu = self._device.type == "cuda"
        self._stages = [_Stage(sizes, pinned=on_gpu) for _ in range(RING if on_gpu else 1)]
        self._memory = torch.empty(_ends(sizes)[-1], dtype=torch.uint8, device=self._device)
        positions, counts, cu_seqlens, input_ids = _parts(self._memory, sizes)
        return Row(
            positions=positions,
            counts=counts,
            sequences=SequenceLayout(cu_seqlens, bucket.max_seqlen),
            input_ids=input_ids,
        )


class _Stage:
    """Pinned memory of one row."""

    def __init__(self, sizes: list[int], *, pinned: bool) -> None:
        self._memory = torch.zeros(_ends(sizes)[-1], dtype=torch.uint8, pin_memory=pinned)
        self._copied = torch.cuda.Event() if pinned else None
        self.positions, self.counts, self.cu_seqlens, self.input_ids = (
            part.numpy() for part in _parts(self._memory, sizes)
        )

    def wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()

    def copy_to(self, memory: Tensor) -> None:
        memory.copy_(self._memory, non_blocking=True)
        if self._copied is not None:
            self._copied.record()


def _ends(sizes: list[int]) -> list[int]:
    """Return the end of each part, in bytes, including the padding that aligns the next part.

    Args:
        sizes: sizes of the parts, in bytes.
    """
    return list(itertools.accumulate(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes))


def _parts(memory: Tensor, sizes: list[int]) -> list[Tensor]:
    """Return views of the memory: positions, counts, cu_seqlens and tokens."""
    kinds = (torch.int64, torch.int64, torch.int32, torch.uint8)
    begins = [0, *_ends(sizes)[:-1]]
    return [
        memory[begin : begin + size].view(kind)
        for begin, size, kind in zip(begins, sizes, kinds, strict=True)
    ]


def _squares(bucket: Bucket, buckets: int) -> float:
    """Return Σ length² over the sequences. The padding at the end of each bucket is left out."""
    ends = bucket.cu_seqlens
    if buckets == 1:
        lengths = np.diff(ends[: bucket.num_seqs + 1]).astype(np.float64)
    else:
        begins = ends[: np.searchsorted(ends, bucket.input_ids.size)]
        lengths = np.diff(ends[: begins.size + 1])[bucket.input_ids[begins] == ESM2.cls].astype(
            np.float64
        )
    return float(lengths @ lengths)
