"""Compare the tokens of records with the sequences of FASTA files of `--exclude`.

- equal (the record equals an entry): look up the record's hash.
- contains (the record contains an entry): `prefix_free` leaves out each entry that begins with a
  shorter entry. A record that contains the longer entry also contains the shorter one, and the
  shorter one is preferred. Then at most one entry begins at any position of a record. One binary
  search finds that entry, even if thousands of entries begin with the same residues.
- contained (an entry contains the record): a binary search in the sorted windows of each file (12
  consecutive tokens, see `suffix_order`) finds all places where the record occurs. Entries are in
  order of preference, so the first place is in the preferred entry. A table of minima finds the
  first place.

Sequences of fewer than WINDOW residues do not count as contained, because they occur in unrelated
proteins by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import sequence_hashes
from pipeline.build.exclusion.containment_kernel import (
    WINDOW,
    code_bits,
    entries_inside,
    gram_bits,
    sequences_inside,
    window_codes,
)
from pipeline.build.exclusion.entries import SEPARATOR, SequenceEntries
from pipeline.build.exclusion.hash_table import HashTable, as_bytes

_BLOCK: Final = 1024
"""`ContainedIn` stores one minimum for each block of this many windows."""


class EqualTo:
    """Finds the sequence of one file that equals a record."""

    def __init__(self, entries: SequenceEntries) -> None:
        tokens = entries.text[entries.text != SEPARATOR]
        hashes = as_bytes(sequence_hashes(tokens, np.cumsum(entries.residues)))
        self._order = np.argsort(hashes)
        self._table = HashTable(hashes[self._order])

    def find(self, hashes: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the entry that equals each sequence, int64[N]; -1 if there is none.

        Args:
            hashes: HASH[N], hashes of the sequences.
        """
        at = self._table.find(hashes)
        return np.where(at >= 0, self._order[at], -1)


class Containing:
    """Finds the preferred sequence that a record contains, among the sequences of all files."""

    def __init__(
        self, files: Sequence[SequenceEntries], keys: NDArray[np.int64], rank: NDArray[np.int64]
    ) -> None:
        """
        Args:
            keys: int64[E], key of each entry of all files, file after file. A key holds kind, file
                and entry of a match (see `match_keys`).
            rank: int64[E], rank of each entry; a lower rank is preferred.
        """
        begins, ends, at = [], [], 0
        for entries in files:
            begins.append(entries.starts[:-1] + at)
            ends.append(entries.starts[1:] - 1 + at)
            at += entries.text.size
        self._text = files[0].text if len(files) == 1 else np.concatenate([f.text for f in files])
        begin, end = np.concatenate(begins), np.concatenate(ends)
        codes = np.concatenate([window_codes(f.text)[f.starts[:-1]] for f in files])
        chosen = prefix_free(self._text, begin, end, codes, rank)
        self._begin, self._end, self._rank = begin[chosen], end[chosen], rank[chosen]
        self._keys = keys[chosen]
        self._codes, first = np.unique(codes[chosen], return_index=True)
        self._groups = np.append(first, chosen.size)
        self._shift = shift_for(64 * self._codes.size)
        self._bits = code_bits(self._codes, self._shift)
        self._grams = gram_bits(self._codes, self._shift)

    def find(
        self, tokens: NDArray[np.uint8], edges: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the key of the preferred entry inside each record, int64[M]; -1 for none.

        Args:
            tokens, edges: uint8[T] and int64[N + 1], tokens of all records, and their edges.
            rows: int64[M], records to search.
        """
        found = entries_inside(
            tokens,
            edges,
            rows,
            self._grams,
            self._bits,
            self._shift,
            self._codes,
            self._groups,
            self._text,
            self._begin,
            self._end,
            self._rank,
        )
        return np.where(found >= 0, self._keys[found], -1) if self._keys.size else found


def prefix_free(
    text: NDArray[np.uint8],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    codes: NDArray[np.uint64],
    rank: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the indices of entries, int64[C], sorted by their tokens.

    Entries that begin with another entry are left out, and so are entries shorter than WINDOW. If
    entries are equal, the one with the lowest rank stays.

    Args:
        text: uint8[T], tokens of all entries.
        begin, end: int64[E], each entry's part of `text`.
        codes: uint64[E], codes of the entries' first windows.
        rank: int64[E], rank of each entry; a lower rank is preferred.
    """
    long = np.flatnonzero(end - begin >= WINDOW)
    order = long[np.argsort(codes[long], kind="stable")]
    edges = np.flatnonzero(np.diff(codes[order], prepend=0, append=0))  # no code is 0
    repeated = np.flatnonzero(np.diff(edges) > 1)
    dropped = np.zeros(order.size, dtype=np.bool_)
    for first, last in zip(edges[repeated].tolist(), edges[repeated + 1].tolist(), strict=True):
        group = sorted(
            (text[begin[entry] : end[entry]].tobytes(), int(rank[entry]), entry)
            for entry in order[first:last].tolist()
        )
        order[first:last] = [entry for _, _, entry in group]
        prefix = group[0][0]
        for i, (tokens, _, _) in enumerate(group[1:], start=first + 1):
            dropped[i] = tokens.startswith(prefix)
            prefix = prefix if dropped[i] else tokens
    return order[~dropped]


class ContainedIn:
    """Finds the preferred sequence of one file that contains a record."""

    def __init__(self, entries: SequenceEntries) -> None:
        self._entries = entries
        order = entries.order
        self._least = (
            np.minimum.reduceat(order, np.arange(0, max(order.size, 1), _BLOCK))[: order.size]
            if order.size
            else order
        )
        self._shift = shift_for(16 * order.size)
        self._bits = code_bits(window_codes(entries.text)[order], self._shift)

    def find(
        self, tokens: NDArray[np.uint8], edges: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the preferred entry that contains each record, int64[M]; -1 if there is none.

        See `Containing.find` for the arguments.
        """
        position = sequences_inside(
            tokens,
            edges,
            rows,
            self._bits,
            self._shift,
            self._entries.text,
            self._entries.order,
            self._least,
            _BLOCK,
        )
        entry = np.searchsorted(self._entries.starts, position, side="right") - 1
        return np.where(position >= 0, entry, -1)


def shift_for(bits: int) -> int:
    """Return the shift (see `code_bits`) for a bit table. The size of the table in bits is the
    smallest power of two above `bits`, but at least 2^12 and at most 2^27."""
    return 64 - min(27, max(12, bits.bit_length()))
