"""Compare the names of records with the names in a file of `--exclude`.

The file is a list of ids, or a result table: a table of search results from BLAST or MMseqs2.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges
from pipeline.build.arrays.sequence_hashes import HASH, sequence_hashes
from pipeline.build.exclusion.entries import ListedNames, NameEntries
from pipeline.build.exclusion.hash_table import HashTable
from pipeline.inputs.headers import Text, unpack_headers


class RecordNames:
    """Hashes of the names of N records."""

    def __init__(self, ids: pa.Array, stated: pa.Array) -> None:
        """
        Args:
            ids, stated: large_binary[N], ids and packed headers (see `pack_headers`).
        """
        values, edges = bytes_and_edges(ids)
        headers = unpack_headers(values, edges, *bytes_and_edges(stated))
        id_hashes = sequence_hashes(values[: edges[-1]], edges[1:])
        self._of_table = (id_hashes, _hashes(headers.accession))
        self._of_list = (*self._of_table, _hashes(headers.name))

    def compared_with(self, entries: NameEntries) -> Iterable[NDArray[np.void]]:
        """Return the hashes of all ids and of all accessions, each HASH[N]. If the entries are a
        list of ids, also return the hashes of all UniProt names, such as HBA_HUMAN."""
        return self._of_list if isinstance(entries, ListedNames) else self._of_table


def _hashes(texts: Text) -> NDArray[np.void]:
    """Return the hash of each text, HASH[N]. The hash of an empty text matches no name."""
    return sequence_hashes(texts.values, texts.edges[1:].astype(np.int64))


class NameIndex:
    """The names in one file, which is a list of ids or a result table."""

    def __init__(self, entries: NameEntries, coverage: float) -> None:
        """
        Args:
            coverage: minimum share of the record that the alignment covers.
        """
        self._entries = entries
        self._coverage = coverage
        self._table = HashTable(entries.hash.view("S16"))

    def find(self, names: NDArray[np.void], residues: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each name, find the first match whose alignment covers enough of the record.

        In a list of ids, all matches count. In a table with coverages, all rows count, because rows
        with too little coverage were left out when the table was read (see `ENOUGH`).

        Return the index of each match's id in the ids of `entries`, int64[N]; -1 for no match.

        Args:
            names: HASH[N], hashes of names.
            residues: int64[N], number of residues of the records.
        """
        found = np.full(names.size, -1, dtype=np.int64)
        at = self._table.find(names)
        rows = np.flatnonzero(at >= 0)
        first = self._entries.first[at[rows]]
        count = self._entries.first[at[rows] + 1] - first
        row = np.repeat(rows, count)
        match = np.arange(row.size) + np.repeat(first - np.cumsum(count) + count, count)
        covered = self._entries.aligned[match] / residues[row] >= self._coverage
        matched, at_first = np.unique(row[covered], return_index=True)
        found[matched] = self._entries.match[match[covered][at_first]]
        return found


def name_hashes(names: list[bytes]) -> NDArray[np.void]:
    """Return the hash of each name, HASH[N]."""
    ends = np.cumsum([len(name) for name in names], dtype=np.int64)
    if not names:
        return np.empty(0, dtype=HASH)
    return sequence_hashes(np.frombuffer(b"".join(names), dtype=np.uint8), ends)
