"""Cut sequences into windows that the model can see at once.

A sequence that is short enough is a single window. A longer sequence becomes windows of equal
length that overlap. A residue in an overlap belongs to the window in which it is farther from the
ends: each window *owns* some of its residues, and each residue has one owner. Results of a residue
are those of its owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from schemas.shard import Bucket
from schemas.vocabulary import ESM2


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """A window of a sequence.

    tokens: uint8[L], <cls>, L - 2 residues, <eos>.
    record: ordinal of the record.
    start: index in the record of the window's first residue.
    own_begin, own_end: the residues that the window owns are own_begin … own_end - 1, counted from
        the window's first residue.
    """

    tokens: NDArray[np.uint8]
    record: int
    start: int
    own_begin: int
    own_end: int


def windows_of(
    bucket: Bucket,
    records: NDArray[np.int64],
    starts: NDArray[np.int32],
    *,
    longest: int,
    overlap: int,
) -> Iterator[Window]:
    """Yield the windows of all sequences in a bucket.

    Args:
        records: int64[num_seqs], ordinal of each sequence's record.
        starts: int32[num_seqs], index in the record of each sequence's first residue.
        longest: maximum length of a window in tokens, <cls> and <eos> included.
        overlap: number of residues that neighbouring windows share, at least.
    """
    edges = bucket.cu_seqlens.tolist()
    for number in range(bucket.num_seqs):
        tokens = bucket.input_ids[edges[number] : edges[number + 1]]
        while tokens[-1] == ESM2.pad:  # --length-multiple
            tokens = tokens[:-1]
        record, start = int(records[number]), int(starts[number])
        yield from sequence_windows(
            tokens, record=record, start=start, longest=longest, overlap=overlap
        )


def sequence_windows(
    tokens: NDArray[np.uint8], *, record: int, start: int, longest: int, overlap: int
) -> Iterator[Window]:
    """Yield the windows of one sequence.

    Args:
        tokens: uint8[L], <cls>, L - 2 residues, <eos>.
        record: ordinal of the record.
        start: index in the record of the sequence's first residue.
        longest, overlap: see `windows_of`.
    """
    if tokens.size <= longest:
        yield Window(
            tokens=tokens, record=record, start=start, own_begin=0, own_end=tokens.size - 2
        )
        return
    residues = tokens[1:-1]
    for begin, own_begin, own_end in window_places(
        residues.size, longest=longest - 2, overlap=overlap
    ):
        yield Window(
            tokens=np.concatenate(
                ([ESM2.cls], residues[begin : begin + longest - 2], [ESM2.eos])
            ).astype(np.uint8),
            record=record,
            start=start + begin,
            own_begin=own_begin,
            own_end=own_end,
        )


def one_residue_each(windows: Sequence[Window], *, piece: int, pieces: int) -> list[Window]:
    """Return copies of windows that own one residue each, so that a function of rows can mask it.
    A window that owns N residues becomes N copies. They share its tokens.

    Args:
        piece, pieces: return only this piece of all copies, out of `pieces` pieces of equal size.
    """
    ends = np.cumsum([window.own_end - window.own_begin for window in windows])
    total = int(ends[-1]) if windows else 0
    found = []
    for number in range(total * piece // pieces, total * (piece + 1) // pieces):
        at = int(np.searchsorted(ends, number, side="right"))
        place = windows[at].own_end - (int(ends[at]) - number)
        found.append(replace(windows[at], own_begin=place, own_end=place + 1))
    return found


def window_places(residues: int, *, longest: int, overlap: int) -> list[tuple[int, int, int]]:
    """Return the place of each window of a long sequence: the index of its first residue, and the
    range of residues that it owns, counted from its first residue.

    Each window has `longest` residues. The last window ends at the end of the sequence, so it may
    share more than `overlap` residues with the window before.
    """
    step = longest - overlap
    count = -(-(residues - overlap) // step)
    begins = [*(number * step for number in range(count - 1)), residues - longest]
    # the middle of each overlap
    middles = [(before + longest + after) // 2 for before, after in zip(begins, begins[1:])]  # noqa: B905 (one is shorter)
    own_begins, own_ends = [0, *middles], [*middles, residues]
    return [
        (begin, own_begin - begin, own_end - begin)
        for begin, own_begin, own_end in zip(begins, own_begins, own_ends, strict=True)
    ]
