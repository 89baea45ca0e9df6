"""Mark the records of a partition that `--exclude` leaves out.

A duplicate of an excluded record is excluded too, with the same match. Otherwise a copy of a listed
record would stay in the dataset under another id. Duplicates are the records that `--dedup` treats
as equal. With `--dedup none`, they are the records with the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.build.exclusion.exclusion_index import (
    Candidates,
    ExclusionIndex,
    exclusion_files,
)
from pipeline.build.exclusion.hash_table import as_bytes
from pipeline.build.exclusion.match_keys import NO_MATCH, files_of, kinds_of
from pipeline.build.options import DatasetOptions
from pipeline.build.reduce_stage.deduplicate import KEPT
from pipeline.build.reduce_stage.record_rows import RecordRows
from pipeline.build.task_results import PackResult, PreparedFile, ReduceResult
from schemas.records import EXCLUSION_KINDS, STATUS_CODES, Status
from schemas.text.phrases import plural, plural_of

EXCLUDED = STATUS_CODES.index(Status.EXCLUDED)

Tokens = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""uint8[T], tokens of N records; int64[N + 1], edges of the records in the tokens."""


class RecordExclusion:
    """Marks the excluded records of one partition, run by run. A run is a group of consecutive
    records that fits into memory.

    by_kind: int64[kinds], number of excluded records with each kind of match
    by_file: int64[files], number of excluded records whose match is in each file
    """

    def __init__(self, index: ExclusionIndex, options: DatasetOptions) -> None:
        self._index = index
        self._cropped = options.dedup == "cropped"
        self._hashes = np.empty(0, dtype="S16")
        self._keys = np.empty(0, dtype=np.int64)
        self.by_kind = np.zeros(len(EXCLUSION_KINDS), dtype=np.int64)
        self.by_file = np.zeros(index.files, dtype=np.int64)

    @property
    def spreads(self) -> bool:
        """True if a record may be excluded only because it duplicates an excluded record. All
        runs of a partition must then be passed to `look` before the first `mark`."""
        return self._cropped or self._index.has_names

    @property
    def looks_at_tokens(self) -> bool:
        """True if `look` needs tokens."""
        return self._cropped

    def look(self, rows: RecordRows, hashes: NDArray[np.void], tokens: Tokens | None) -> None:
        """Note the sequences of a run's excluded records. Their duplicates are excluded, too.

        Args:
            hashes: HASH[N], equal for duplicates.
            tokens: None if `looks_at_tokens` is False.
        """
        candidates = _candidates(rows)
        keys = self._index.by_name(candidates)
        if tokens is not None:
            keys = self._index.preferred(keys, self._index.by_sequence(candidates, *tokens))
        self._note(as_bytes(hashes[candidates.rows]), keys)

    def mark(self, rows: RecordRows, hashes: NDArray[np.void], tokens: Tokens) -> None:
        """Set status and match of the excluded records of a run; see `look` for the arguments."""
        candidates = _candidates(rows)
        keys = self._index.by_sequence(candidates, *tokens)
        if self.spreads:
            keys = self._index.preferred(keys, self._noted(as_bytes(hashes[candidates.rows])))
        found = np.flatnonzero(keys != NO_MATCH)
        self.by_kind += np.bincount(kinds_of(keys[found]), minlength=self.by_kind.size)
        self.by_file += np.bincount(files_of(keys[found]), minlength=self.by_file.size)
        set_excluded(rows, candidates.rows[found], keys[found])

    def _note(self, hashes: NDArray[np.bytes_], keys: NDArray[np.int64]) -> None:
        found = np.flatnonzero(keys != NO_MATCH)
        if found.size:
            self._hashes, self._keys = self._index.best_by_hash(
                np.concatenate((self._hashes, hashes[found])),
                np.concatenate((self._keys, keys[found])),
            )

    def _noted(self, hashes: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """Return the key of the match that `look` noted for each hash, int64[N]; NO_MATCH if there
        is none."""
        if not self._hashes.size:
            return np.full(hashes.size, NO_MATCH, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._hashes, hashes), self._hashes.size - 1)
        return np.where(self._hashes[at] == hashes, self._keys[at], NO_MATCH)


def set_excluded(rows: RecordRows, chosen: NDArray[np.int64], keys: NDArray[np.int64]) -> None:
    """Give the rows at `chosen`, int64[M], the status `excluded`, and the matches `keys`, int64[M]
    (see `match_keys`)."""
    if chosen.size:
        rows.status = rows.status.copy()
        rows.status[chosen] = EXCLUDED
        rows.match[chosen] = keys


def exclusion_counts(exclusion: RecordExclusion | None) -> tuple[dict[str, int], tuple[int, ...]]:
    """Return the number of excluded records by kind and by file; empty without --exclude."""
    if exclusion is None:
        return {}, ()
    by_kind: Iterable[int] = exclusion.by_kind.tolist()
    return dict(zip(EXCLUSION_KINDS, by_kind, strict=True)), tuple(exclusion.by_file.tolist())


def unused_exclusions(
    prepared: Sequence[PreparedFile], parts: Sequence[PackResult]
) -> Iterator[str]:
    """Yield a line for each file of --exclude that excluded no record."""
    files = exclusion_files(prepared)
    if not files:
        return
    reduced = [part for part in parts if isinstance(part, ReduceResult)]
    counts = np.sum([part.excluded_by_file for part in reduced], axis=0)
    filtered = sum(part.status.get(Status.FILTERED, 0) for part in reduced)
    where = (
        f"; not compared: {plural(filtered, 'record')} that --where left out" if filtered else ""
    )
    for file, count in zip(files, counts.tolist(), strict=True):
        if not count:
            others = ", except records that other files exclude" if len(files) > 1 else ""
            entries = plural_of("entry", "entries", file.rows)
            yield f"--exclude {file.name}: no record matches its {entries}{others}{where}"


def _candidates(rows: RecordRows) -> Candidates:
    return Candidates(
        rows=np.flatnonzero(rows.status == KEPT),
        ids=rows.id,
        stated=rows.stated,
        ordinal=rows.ordinal,
        residues=rows.residues,
        hash=rows.hash,
    )
