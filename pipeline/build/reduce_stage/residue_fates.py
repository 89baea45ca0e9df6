"""Count the residues that a build leaves out, because of a record's status or because of cropping.

A build adds these numbers up from the results of its tasks. For an existing dataset, the numbers
are computed from three columns of records/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipeline.build.arrays.arrow_arrays import valid
from pipeline.build.reduce_stage.deduplicate import residues_by_status
from pipeline.build.task_results import PackResult, ReduceResult
from pipeline.storage.folder import Folder
from pipeline.storage.open_input import open_input
from schemas.errors import InputError
from schemas.manifest import Manifest
from schemas.records import EXCLUSION_KINDS, STATUS_CODES, Status
from schemas.shard import CROPPING

_COLUMNS: Final = ["residues", "status", "exclusion", "shard"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ResidueFates:
    """Counts of the residues and records that a build kept or left out.

    by_status: for each status, the number of residues of its records, before cropping
    cropped_records: number of records of variant 0 that were cropped
    excluded: for each kind of match, the number of excluded records
    not_drawn: number of kept records that are not in variant 0 because of --sample-clusters
    residues_not_drawn: number of residues of these records
    """

    by_status: Mapping[Status, int]
    cropped_records: int
    excluded: Mapping[str, int]
    not_drawn: int = 0
    residues_not_drawn: int = 0

    def cropped(self, manifest: Manifest) -> int:
        """Return the number of residues that cropping removed from records of variant 0."""
        return self.by_status[Status.KEPT] - self.residues_not_drawn - manifest.residues_kept


def fates_in_results(parts: Sequence[PackResult]) -> ResidueFates:
    """Return the counts, summed over the results of reduce tasks."""
    reduced = [part for part in parts if isinstance(part, ReduceResult)]
    return ResidueFates(
        by_status={
            status: sum(part.residues.get(status, 0) for part in reduced) for status in Status
        },
        cropped_records=sum(part.cropped_records for part in reduced),
        excluded={
            kind: sum(part.excluded_by_kind.get(kind, 0) for part in reduced)
            for kind in EXCLUSION_KINDS
        },
        not_drawn=sum(part.not_drawn for part in reduced),
        residues_not_drawn=sum(part.residues_not_drawn for part in reduced),
    )


def fates_in_records(folder: Folder, manifest: Manifest) -> ResidueFates | None:
    """Return the counts, computed from records/; None if a file is unreadable."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    total, cropped = np.zeros(len(STATUS_CODES), dtype=np.int64), 0
    not_drawn = residues_not_drawn = 0
    excluded = dict.fromkeys(EXCLUSION_KINDS, 0)
    try:
        for entry in manifest.records:
            with (
                open_input(folder.where(entry.name)) as raw,
                pq.ParquetFile(raw) as file,
            ):
                for batch in file.iter_batches(columns=_COLUMNS):
                    residues = batch.column("residues").to_numpy()
                    words = batch.column("status")
                    codes = [STATUS_CODES.index(Status(name)) for name in words.dictionary.tolist()]
                    status = np.array(codes, dtype=np.int8)[words.indices.to_numpy()]
                    total += residues_by_status(status, residues)
                    long = residues > manifest.longest_piece
                    kinds = batch.column("exclusion")
                    counts = np.bincount(kinds.indices.drop_null().to_numpy())
                    for kind, count in zip(
                        kinds.dictionary.tolist(), counts.tolist(), strict=False
                    ):
                        excluded[kind] += count
                    kept = status == STATUS_CODES.index(Status.KEPT)
                    drawn = kept & valid(batch.column("shard").indices)
                    cropped += int((long & drawn).sum())
                    not_drawn += int((kept & ~drawn).sum())
                    residues_not_drawn += int(residues[kept & ~drawn].sum())
    except (InputError, OSError, ValueError, pa.ArrowException):
        return None  # `thdpack verify` names the damaged file
    return ResidueFates(
        by_status=dict(zip(STATUS_CODES, total.tolist(), strict=True)),
        excluded=excluded,
        cropped_records=cropped if manifest.options["long"] in CROPPING else 0,
        not_drawn=not_drawn,
        residues_not_drawn=residues_not_drawn,
    )
