"""Pack windows into rows: the input of one forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.shard import Bucket
from schemas.vocabulary import ESM2
from trainer.inference.windows import Window

MULTIPLE: Final = 128
"""The number of tokens in a row is a multiple of this number, as kernels and FP8 need it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowShape:
    """Sizes that all rows have in common.

    tokens: number of tokens in a row.
    longest: maximum length of a window in tokens.
    """

    tokens: int
    longest: int

    @property
    def windows(self) -> int:
        """Maximum number of windows in a row. More windows make attention kernels slower."""
        return max(127, self.tokens // 128 - 1)

    @property
    def slots(self) -> int:
        """Number of windows and tail pieces (parts of the padding) that a row has room for."""
        return self.windows + -(-self.tokens // self.longest)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRow:
    """A row and its windows.

    bucket: the tokens. Window i is sequence i of the bucket.
    owned: int64[2 × slots], for each window the range of the tokens that it owns: begin and end,
        counted in the row. The entries of slots without a window are equal to the row's length.
    """

    bucket: Bucket
    windows: Sequence[Window]
    owned: NDArray[np.int64]


def rows_of(windows: Sequence[Window], shape: RowShape) -> Iterator[PackedRow]:
    """Pack windows into as few rows as possible, and yield the rows. No windows give no rows.

    The same windows give the same rows. A row's windows have the order of `windows`.
    """
    from packers import PACKERS  # compiled code, which training does not load

    if not windows:
        return
    lengths = np.array([window.tokens.size for window in windows], dtype=np.int64)
    rows = PACKERS["bfd"](lengths, capacity=shape.tokens, max_seqs=shape.windows)
    order = np.argsort(rows, kind="stable")
    ends = np.flatnonzero(np.diff(rows[order], append=-1)) + 1
    for chosen in np.split(order, ends[:-1]):
        yield packed_row([windows[index] for index in chosen], shape)


def packed_row(windows: Sequence[Window], shape: RowShape) -> PackedRow:
    """Return one row that holds all the windows, in their order. They must fit."""
    tokens = np.full(shape.tokens, ESM2.pad, dtype=np.uint8)
    used = sum(window.tokens.size for window in windows)
    tokens[:used] = np.concatenate([window.tokens for window in windows])
    edges = np.cumsum([0, *(window.tokens.size for window in windows)])
    tail = np.arange(used + shape.longest, shape.tokens, shape.longest)
    cu_seqlens = np.full(shape.slots + 1, shape.tokens, dtype=np.int32)
    cu_seqlens[: edges.size] = edges
    cu_seqlens[edges.size : edges.size + tail.size] = tail
    owned = np.full((shape.slots, 2), shape.tokens, dtype=np.int64)
    for number, (window, first) in enumerate(zip(windows, edges.tolist(), strict=False)):
        owned[number] = first + 1 + window.own_begin, first + 1 + window.own_end
    bucket = Bucket(
        input_ids=tokens,
        cu_seqlens=cu_seqlens,
        max_seqlen=shape.longest,
        num_seqs=len(windows),
        num_tokens=used,
        position=-1,
    )
    return PackedRow(bucket=bucket, windows=windows, owned=owned.ravel())
