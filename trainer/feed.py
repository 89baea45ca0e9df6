"""Buckets onto the device: rows are written into pinned memory and copied while the device computes what came before.

A row is one copy: positions, counts, cu_seqlens and tokens stand in one buffer. A ring of three keeps the host at most two rows ahead.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.reader import ShardReader
from schemas.bucket import Bucket
from schemas.vocabulary import ESM2
from trainer.model import Sequences

RING: Final = 3
_ALIGNMENT: Final = 256
"""Bytes; what kernels like pointers to be multiples of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """k merged buckets on the device.

    input_ids: uint8[T]. positions: int64[k]. counts: int64[2], real tokens and Σ length² of real sequences.
    """

    input_ids: Tensor
    sequences: Sequences
    positions: Tensor
    counts: Tensor


class Feed:
    """This rank's rows, endlessly. waited: seconds the host has spent on getting them so far, reading and copying into pinned memory."""

    def __init__(self, reader: ShardReader, *, buckets: int, stride: int, device: torch.device) -> None:
        """
        Args:
            buckets: merged into one row.
            stride: difference of the positions of this rank's consecutive buckets.
        """
        self._rows: Iterator[Bucket] = reader.batches(buckets) if buckets > 1 else reader
        self._places = np.arange(buckets, dtype=np.int64) * stride
        self._stages = [Stage(device) for _ in range(RING)]
        self._turn = 0
        self.waited = 0.0

    def __next__(self) -> Row:
        started = time.perf_counter()
        bucket = next(self._rows)
        got = time.perf_counter()
        stage = self._stages[self._turn]
        self._turn = (self._turn + 1) % RING
        stage.wait()  # for the device: it is behind, not the data
        free = time.perf_counter()
        row = stage.copy(bucket, bucket.position + self._places)
        self.waited += got - started + time.perf_counter() - free
        return row

    def __iter__(self) -> Iterator[Row]:
        return self


class Stage:
    """One buffer in pinned memory, and the event that says when the device has copied it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._copied = torch.cuda.Event() if device.type == "cuda" else None

    def wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()

    def copy(self, bucket: Bucket, positions: NDArray[np.int64]) -> Row:
        """The bucket on the device; the copy may still be under way, in order with what the device does next."""
        lengths = _real_lengths(bucket)
        parts = [
            positions,
            np.array([bucket.num_tokens, int(lengths @ lengths)], dtype=np.int64),
            bucket.cu_seqlens,
            bucket.input_ids,
        ]
        ends = np.cumsum([-(-part.nbytes // _ALIGNMENT) * _ALIGNMENT for part in parts])
        if self._buffer.numel() != ends[-1]:
            self._buffer = torch.empty(int(ends[-1]), dtype=torch.uint8, pin_memory=self._copied is not None)
        begins = [0, *ends[:-1].tolist()]
        memory = self._buffer.numpy()
        for begin, part in zip(begins, parts, strict=True):
            memory[begin : begin + part.nbytes] = part.view(np.uint8)
        there = self._buffer.to(self._device, non_blocking=True, copy=True)
        if self._copied is not None:
            self._copied.record()
        views = [there[begin : begin + part.nbytes] for begin, part in zip(begins, parts, strict=True)]
        return Row(
            positions=views[0].view(torch.int64),
            counts=views[1].view(torch.int64),
            sequences=Sequences(views[2].view(torch.int32), bucket.max_seqlen),
            input_ids=views[3],
        )


def _real_lengths(bucket: Bucket) -> NDArray[np.int64]:
    """Lengths of the real sequences; tails of padding stand at the end, or between those of merged buckets."""
    begins = np.minimum(bucket.cu_seqlens[:-1], bucket.input_ids.size - 1)
    lengths = np.diff(bucket.cu_seqlens).astype(np.int64)
    return lengths[(lengths > 0) & (bucket.input_ids[begins] == ESM2.cls)]
