"""See containment_kernel.pyx."""

import numpy as np
from numpy.typing import NDArray

WINDOW: int
"""Minimum number of residues of a contained sequence: 12, the largest number of 5-bit tokens that
fit into a uint64."""

def window_codes(text: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return a code for each position: the WINDOW tokens that begin there, uint64[T].

    The first token is in the highest 5 bits. Tokens after the next 0 (an entry's end) count as 0.

    Args:
        text: uint8[T], tokens below 32.
    """

def code_bits(codes: NDArray[np.uint64], shift: int) -> NDArray[np.uint64]:
    """Return a bit table, uint64[2^(64 - shift) / 64]. One bit, chosen by a hash, is set per code.

    Args:
        codes: uint64[N].
        shift: 64 minus log2 of the number of bits in the table; at most 58.
    """

def gram_bits(codes: NDArray[np.uint64], shift: int) -> NDArray[np.uint64]:
    """Return a bit table (see `code_bits`) of all runs of eight tokens in N windows.

    Args:
        codes: uint64[N], codes of the windows (see `window_codes`).
    """

def entries_inside(
    tokens: NDArray[np.uint8],
    edges: NDArray[np.int64],
    rows: NDArray[np.int64],
    grams: NDArray[np.uint64],
    bits: NDArray[np.uint64],
    shift: int,
    codes: NDArray[np.uint64],
    groups: NDArray[np.int64],
    text: NDArray[np.uint8],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    rank: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the preferred entry that each record contains, int64[M]; -1 if it contains none.

    The search reads eight tokens at every fifth position of a record. If an entry begins anywhere
    in the record, one of these reads lies inside the entry's first WINDOW tokens. So if the bit
    table `grams` has the eight tokens, the search compares entries at the five positions where one
    may begin.

    Args:
        tokens: uint8[T], tokens of all records.
        edges: int64[N + 1], edges of the records in `tokens`.
        rows: int64[M], records to search.
        grams, bits, shift: bit tables of `codes`; see `gram_bits` and `code_bits`.
        codes: uint64[G], codes of the entries' first windows, ascending and distinct.
        groups: int64[G + 1], index of the first entry with each code.
        text: uint8[…], tokens of all entries.
        begin, end: int64[E], each entry's part of `text`. An entry has at least WINDOW tokens. The
            entries are sorted by their tokens, and no entry is the beginning of another one.
        rank: int64[E], rank of each entry. The entry of the lowest rank is preferred.
    """

def sequences_inside(
    tokens: NDArray[np.uint8],
    edges: NDArray[np.int64],
    rows: NDArray[np.int64],
    bits: NDArray[np.uint64],
    shift: int,
    text: NDArray[np.uint8],
    order: NDArray[np.int64],
    least: NDArray[np.int64],
    block: int,
) -> NDArray[np.int64]:
    """Return the first position of each record in `text`, int64[M]; -1 if it does not occur there.

    Args:
        tokens: uint8[T], tokens of all records.
        edges: int64[N + 1], edges of the records in `tokens`.
        rows: int64[M], records to search. Records of fewer than WINDOW tokens are not found.
        bits, shift: bit table of all windows of `text`; see `code_bits`.
        text: uint8[…], tokens of all entries, with a 0 after each entry.
        order: int64[W], starts of all windows in `text`, sorted; see `suffix_order`.
        least: int64[W / block, rounded up], minimum of each block of `order`.
        block: number of positions in a block.
    """
