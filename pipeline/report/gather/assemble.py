"""From what was counted, of a dataset or of raw FASTA, to the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.report.gather.lengths import Counted
from pipeline.report.model import TOP, DuplicateFlow, InputFlow, RecordNote, Settings
from schemas.manifest_entries import Histogram
from schemas.records import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What was counted of records.

    fates: (input, status) → records and residues
    all_in, kept: residues of every record, and of those kept, before cropping
    longest, repeated, duplicates: as in Report
    """

    fates: Mapping[tuple[str, str], tuple[int, int]]
    all_in: Counted
    kept: Counted
    unknown_records: int
    unknown_residues: int
    longest: tuple[RecordNote, ...]
    repeated: tuple[RecordNote, ...]
    duplicates: tuple[DuplicateFlow, ...]

    @property
    def by_status(self) -> dict[str, int]:
        return {
            status: sum(count for (_, found), (count, _) in self.fates.items() if found == status)
            for status in Status
        }

    def inputs(self, sizes: Sequence[tuple[str, int]]) -> tuple[InputFlow, ...]:
        """The flow of each input, given its name and bytes."""
        return tuple(self._input(name, size) for name, size in sizes)

    def _input(self, name: str, size: int) -> InputFlow:
        found = {status: self.fates.get((name, status), (0, 0)) for status in Status}
        return InputFlow(
            name=name,
            bytes=size,
            records=sum(count for count, _ in found.values()),
            residues=sum(residues for _, residues in found.values()),
            by_status={status.value: count for status, (count, _) in found.items()},
        )


def settings_of(vocabulary: str, options: Mapping[str, Any]) -> Settings:
    """The settings among a build's options."""
    return Settings(
        vocabulary=vocabulary,
        **{
            field.name: options[field.name]
            for field in fields(Settings)
            if field.name != "vocabulary"
        },
    )


def costs_of(histograms: Mapping[str, Mapping[str, Histogram]]) -> list[Histogram | None]:
    """The `cost` histogram of each split."""
    return [of_split.get("cost") for of_split in histograms.values()]


def most_repeated(times: NDArray[np.uint32]) -> list[int]:
    """The ordinals of at most TOP records with duplicates, by falling number, then by ordinal."""
    how_often = np.bincount(times) if times.size else np.zeros(1, dtype=np.int64)
    at_least = np.cumsum(how_often[::-1])[::-1]  # at_least[k]: records with k duplicates or more
    enough = np.flatnonzero(at_least[1:] >= TOP)
    limit = int(enough[-1]) + 1 if enough.size else 1
    candidates = np.flatnonzero(times >= limit)
    order = np.lexsort((candidates, -times[candidates].astype(np.int64)))
    return [int(ordinal) for ordinal in candidates[order[:TOP]]]
