"""Find each record's match among the entries of all files of `--exclude`.

If a record has several matches, one is chosen:

1. by kind, in the order of EXCLUSION_KINDS: equal, listed, contains, contained, similar;
2. the shortest entry, if entries are sequences;
3. the smallest id, as bytes;
4. the smallest name of the file.

The choice does not depend on the order of the files or of their entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.exclusion.entries import (
    Entries,
    ListedNames,
    NameEntries,
    OrdinalEntries,
    SequenceEntries,
    read_entries,
)
from pipeline.build.exclusion.match_keys import (
    MOST_FILES,
    NO_MATCH,
    divided_key,
    files_of,
    kinds_of,
    match_keys,
)
from pipeline.build.exclusion.name_index import NameIndex, RecordNames
from pipeline.build.exclusion.sequence_index import ContainedIn, Containing, EqualTo
from pipeline.build.task_results import PreparedFile
from pipeline.storage.folder import Folder
from schemas.records import EXCLUSION_KINDS

_EQUAL, _LISTED, _CONTAINS, _CONTAINED, _SIMILAR = range(len(EXCLUSION_KINDS))


@dataclass(frozen=True, slots=True)
class Match:
    """Reason why a record is excluded.

    kind: one of EXCLUSION_KINDS
    id: id of the entry that matches
    file: name of the entry's file
    """

    kind: str
    id: bytes
    file: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """N records to compare with the entries.

    rows: int64[M], indices of the records that are still kept; only these are compared
    ids, stated: large_binary[N], ids and packed headers (see `pack_headers`)
    ordinal: int64[N], number of each record among all input records
    residues: int64[N], number of residues of each record
    hash: HASH[N], hashes of the tokens
    """

    rows: NDArray[np.int64]
    ids: pa.Array
    stated: pa.Array
    ordinal: NDArray[np.int64]
    residues: NDArray[np.int64]
    hash: NDArray[np.void]


class ExclusionIndex:
    """Entries of all files."""

    def __init__(self, files: Sequence[tuple[str, Entries]], coverage: float) -> None:
        """
        Args:
            files: name and entries of each file, sorted by name.
            coverage: value of --exclude-coverage.
        """
        assert len(files) < MOST_FILES
        self._files = files
        sequences = [(i, e) for i, (_, e) in enumerate(files) if isinstance(e, SequenceEntries)]
        names = [(i, e) for i, (_, e) in enumerate(files) if isinstance(e, NameEntries)]
        self._ordinals = [(i, e) for i, (_, e) in enumerate(files) if isinstance(e, OrdinalEntries)]
        self._equal = [(i, EqualTo(entries)) for i, entries in sequences]
        self._contained = [(i, ContainedIn(entries)) for i, entries in sequences]
        self._names = [(i, entries, NameIndex(entries, coverage)) for i, entries in names]
        if sequences:
            keys = np.concatenate(
                [match_keys(_CONTAINS, i, np.arange(len(entries))) for i, entries in sequences]
            )
            self._containing = Containing([e for _, e in sequences], keys, self._ranks(keys))

    @property
    def files(self) -> int:
        """Number of files."""
        return len(self._files)

    @property
    def has_names(self) -> bool:
        """True if a file excludes records by name or ordinal, and not only by sequence. Without
        such a file, equal sequences have equal matches."""
        return bool(self._names or self._ordinals)

    def by_sequence(
        self, candidates: Candidates, tokens: NDArray[np.uint8], edges: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Compare the tokens of each candidate with the entries.

        Return the key of each candidate's match (kind, file and entry as one integer, see
        `match_keys`), int64[M]; NO_MATCH if there is none.

        Args:
            tokens, edges: uint8[T] and int64[N + 1]; the tokens of record i are
                tokens[edges[i]:edges[i + 1]].
        """
        rows = candidates.rows
        best = np.full(rows.size, NO_MATCH, dtype=np.int64)
        for file, equal in self._equal:
            found = match_keys(_EQUAL, file, equal.find(candidates.hash[rows]))
            best = self.preferred(best, found)
        if self._equal:
            left = np.flatnonzero(best == NO_MATCH)
            inside = self._containing.find(tokens, edges, rows[left])
            best[left] = np.where(inside >= 0, inside, NO_MATCH)
        left = np.flatnonzero(best == NO_MATCH)
        for file, contained in self._contained:
            found = match_keys(_CONTAINED, file, contained.find(tokens, edges, rows[left]))
            best[left] = self.preferred(best[left], found)
        return best

    def by_name(self, candidates: Candidates) -> NDArray[np.int64]:
        """Compare the names and the ordinal of each candidate with the entries.

        Return the key of each candidate's match, int64[M]; NO_MATCH if there is none.
        """
        rows = candidates.rows
        best = np.full(rows.size, NO_MATCH, dtype=np.int64)
        names = RecordNames(candidates.ids, candidates.stated) if self._names else None
        for file, entries, index in self._names:
            assert names is not None
            kind = _LISTED if isinstance(entries, ListedNames) else _SIMILAR
            for hashes in names.compared_with(entries):
                found = index.find(hashes[rows], candidates.residues[rows])
                best = self.preferred(best, match_keys(kind, file, found))
        for file, found_before in self._ordinals:
            at = np.searchsorted(found_before.ordinal, candidates.ordinal[rows])
            at = np.minimum(at, max(found_before.ordinal.size - 1, 0))
            if found_before.ordinal.size:
                same = found_before.ordinal[at] == candidates.ordinal[rows]
                found = np.where(same, found_before.match[at], -1)
                best = self.preferred(best, match_keys(_SIMILAR, file, found))
        return best

    def preferred(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the preferred key of each pair of keys, int64[N]."""
        best = np.minimum(one, other)
        worst = np.maximum(one, other)
        # within a file, the smaller key is preferred
        unsure = np.flatnonzero(
            (worst != NO_MATCH)
            & (kinds_of(best) == kinds_of(worst))
            & (files_of(best) != files_of(worst))
        )
        if unsure.size:
            ranks = self._ranks(np.concatenate((best[unsure], worst[unsure])))
            swapped = unsure[ranks[unsure.size :] < ranks[: unsure.size]]
            best[swapped] = worst[swapped]
        return best

    def _ranks(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a rank for each key, int64[N]. A key with a lower rank is preferred."""
        if len(self._files) == 1:
            return keys
        distinct, inverse = np.unique(keys, return_inverse=True)
        order = sorted(range(distinct.size), key=lambda i: self._preference(int(distinct[i])))
        ranks = np.empty(distinct.size, dtype=np.int64)
        ranks[order] = np.arange(distinct.size)
        return ranks[inverse]

    def _preference(self, key: int) -> tuple[int, int, bytes, int]:
        kind, file, entry = divided_key(key)
        entries = self._files[file][1]
        residues = int(entries.residues[entry]) if isinstance(entries, SequenceEntries) else 0
        return kind, residues, entries.id(entry), file

    def best_by_hash(
        self, hashes: NDArray[np.bytes_], keys: NDArray[np.int64]
    ) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        """Return the distinct hashes in ascending order, S16[K], and the preferred key of each,
        int64[K]."""
        order = np.lexsort((self._ranks(keys), hashes))
        distinct, first = np.unique(hashes[order], return_index=True)
        return distinct, keys[order][first]

    def match(self, key: int) -> Match:
        """Return the match with a key (see `match_keys`)."""
        kind, file, entry = divided_key(key)
        name, entries = self._files[file]
        return Match(EXCLUSION_KINDS[kind], entries.id(entry), name)


def exclusion_files(prepared: Sequence[PreparedFile]) -> list[PreparedFile]:
    """Return the files of --exclude, sorted by name. The key of a match holds an index into this
    list."""
    return sorted(
        (f for f in prepared if f.option == "exclude"), key=lambda f: (f.name, f.xxh3_128)
    )


_last_loaded: tuple[tuple[str, ...], ExclusionIndex] | None = None
"""Identity and ExclusionIndex of the last build. One index is enough, because a process works on
one build at a time."""


def load_exclusions(
    prepared: Sequence[PreparedFile], work: Folder, coverage: float
) -> ExclusionIndex | None:
    """Return the index of a build's exclusions; None without --exclude.

    A process reads the files once.

    Raises:
        DamagedSpillError: a work file is missing or damaged.
    """
    global _last_loaded
    files = exclusion_files(prepared)
    if not files:
        return None
    identity = (str(coverage), *(f"{work.where(f.file.name)} {f.file.xxh3_128}" for f in files))
    if _last_loaded is None or _last_loaded[0] != identity:
        entries = [(file.name, read_entries(work, file.file)) for file in files]
        _last_loaded = identity, ExclusionIndex(entries, coverage)
    return _last_loaded[1]
