"""See bucket_kernel.pyx."""

import numpy as np
from numpy.typing import NDArray

def gather(
    values: NDArray[np.uint8],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Copy the slices values[begin[i]:end[i]] end to end into `out`, uint8[Σ (end - begin)]."""

def fill_cu_seqlens(
    spans: NDArray[np.int64],
    count: NDArray[np.int64],
    pieces: NDArray[np.int64],
    capacity: int,
    piece: int,
    cu: NDArray[np.int32],
) -> None:
    """Write the cu_seqlens of B buckets end to end: the offsets of sequences and tail pieces.

    Args:
        spans: int64[N], tokens of each sequence, padding included, in the order of the buckets.
        count: int64[B], number of sequences in each bucket.
        pieces: int64[B], number of tail pieces (parts of the padding at the end) of each bucket.
        capacity: tokens per bucket.
        piece: maximum length of a tail piece, in tokens.
        cu: int32[Σ (count + pieces + 1)], the output.
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
        tokens: uint8[T], residue tokens of all sequences.
        begin: int64[N], index of each sequence's first residue in `tokens`.
        residues: int64[N], number of residues in each sequence.
        spans: int64[N], tokens of each sequence, padding included.
        bucket: int64[N], index of each sequence's bucket, ascending.
        ids: uint8[B · capacity], the output; every byte is written.
        token_counts: int64[256], number of occurrences of each token id; padding is not counted.
            The call adds to these numbers. With int64[0], nothing is counted, which is faster.
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
    """Check B buckets. For each bucket, write the code of the first broken rule to `codes`.

    Args:
        ids: uint8[B · capacity], token ids.
        cu, start: all values of the list columns `cu_seqlens` and `start`.
        cu_at, record_at, start_at: int32[B + 1], offsets of the buckets' lists in the columns
            `cu_seqlens`, `record` and `start`.
        limits: int64[5]: capacity, maximum span (tokens of a sequence, padding included), length
            multiple, maximum number of sequences, maximum number of slots.
        specials: uint8[5]: ids of <cls>, <pad> and <eos>, and the lowest and highest id allowed
            inside a sequence.
        codes: int64[B], the output; 0 if a bucket breaks no rule.
    """
