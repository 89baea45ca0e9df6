"""See bucket_kernel.pyx."""

import numpy as np
from numpy.typing import NDArray

def gather(
    values: NDArray[np.uint8],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Copy the runs values[begin[i]:end[i]] end to end into `out`, uint8[Σ (end - begin)]."""

def fill_cu_seqlens(
    spans: NDArray[np.int64],
    count: NDArray[np.int64],
    pieces: NDArray[np.int64],
    capacity: int,
    piece: int,
    cu: NDArray[np.int32],
) -> None:
    """Write the cu_seqlens of B buckets end to end.

    Args:
        spans: int64[N], tokens of each sequence, bucket after bucket.
        count, pieces: int64[B], sequences and tail pieces of each bucket.
        capacity: tokens of a bucket; piece: the longest tail piece.
        cu: int32[Σ (count + pieces + 1)], written.
    """

def fill_buckets(
    tokens: NDArray[np.uint8],
    begin: NDArray[np.int64],
    residues: NDArray[np.int64],
    spans: NDArray[np.int64],
    bucket: NDArray[np.int64],
    ids: NDArray[np.uint8],
    capacity: int,
    cls: int,
    pad: int,
    eos: int,
    token_counts: NDArray[np.int64],
) -> None:
    """Write `<cls>`, residues, `<eos>` and padding of N sequences into B buckets; count token ids.

    Args:
        tokens: uint8[T], residues that `begin` points into.
        begin, residues, spans: int64[N], where a sequence's residues begin, their number, and the
            sequence's tokens with padding.
        bucket: int64[N], ascending: the row of `ids` that the sequence goes to.
        ids: uint8[B · capacity], written in full.
        token_counts: int64[256], added to.
    """

def check_buckets(
    ids: NDArray[np.uint8],
    cu: NDArray[np.int32],
    cu_at: NDArray[np.int32],
    num_seqs: NDArray[np.int32],
    num_tokens: NDArray[np.int32],
    max_seqlen: NDArray[np.int32],
    record_at: NDArray[np.int32],
    start_at: NDArray[np.int32],
    start: NDArray[np.int32],
    limits: NDArray[np.int64],
    specials: NDArray[np.uint8],
    codes: NDArray[np.int64],
) -> None:
    """Check B buckets: set `codes`, int64[B], to the first rule that each breaks, 0 for none.

    Args:
        ids: uint8[B · capacity].
        cu, start: values of the list columns.
        cu_at, record_at, start_at: int32[B + 1], offsets of the list columns.
        limits: capacity, longest span, length multiple, most sequences, slots.
        specials: ids of <cls>, <pad> and <eos>, and the lowest and highest id allowed inside a
            sequence.
    """
