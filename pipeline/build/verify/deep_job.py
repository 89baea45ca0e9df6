"""Data that all tasks of `thdpack verify --deep` share: the dataset, its rules, the work files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.verify.check_shards import bucket_rules
from pipeline.build.verify.row_file import HASH_HALVES, ROW, mapped, reserve
from pipeline.build.verify.verify_task import BucketRules
from pipeline.storage.folder import Folder
from schemas.manifest import Manifest
from schemas.manifest_entries import FileOption
from schemas.shard import Long
from schemas.split_fractions import SplitFractions


@dataclass(frozen=True, kw_only=True, slots=True)
class DeepJob:
    """The dataset, its rules, and the folder of the work files.

    records: number of records
    longest_piece: maximum number of residues in a sequence
    long: treatment of long records (--long)
    seed: seed of the shuffle, which also decides random windows (--long crop)
    dedup_cropped: True if cropped records are compared (--dedup cropped)
    clusters: True if clusters decide splits (--clusters, --sample-clusters)
    sampled: True if each variant has one member of each cluster (--sample-clusters)
    generations: for each earlier build or append that wrote files of records/, the number of
        records up to and including this generation
    exclusion_files: names of the files of --exclude
    schema: schema of records/
    variants: number of variants
    """

    dataset: Folder
    work: Path
    rules: BucketRules
    records: int
    longest_piece: int
    long: Long
    seed: int
    dedup_cropped: bool
    clusters: bool
    sampled: bool
    generations: tuple[int, ...]
    exclusion_files: tuple[str, ...]
    splits: SplitFractions
    schema: pa.Schema
    variants: int

    @classmethod
    def of(cls, manifest: Manifest, dataset: Folder, work: Path) -> Self:
        """Return the job of a dataset, and create its work files.

        Raises:
            BuildError: the disk has too little space.
        """
        job = cls(
            dataset=dataset,
            work=work,
            rules=bucket_rules(manifest),
            records=sum(manifest.records_by_status.values()),
            longest_piece=manifest.longest_piece,
            long=cast(Long, manifest.options["long"]),
            seed=manifest.seed,
            dedup_cropped=manifest.options["dedup"] == "cropped",
            clusters=bool(_names(manifest, "clusters") or _names(manifest, "sample-clusters")),
            sampled=manifest.sampled_clusters is not None,
            generations=_boundaries(manifest),
            exclusion_files=_names(manifest, "exclude"),
            splits=SplitFractions.parse(str(manifest.options["split"])),
            schema=manifest.records_schema,
            variants=manifest.variants,
        )
        reserve(work / "rows", job.records * ROW.itemsize)
        for variant in range(1, job.variants):
            reserve(work / f"seen-{variant}", job.records)
        if job.compares_first_pieces:
            reserve(work / "first-pieces", job.records * HASH_HALVES.itemsize)
        return job

    @property
    def rows(self) -> NDArray[Any]:
        """ROW[records]; the index is the record's ordinal, its number among all input records."""
        return mapped(self.work / "rows", ROW)[: self.records]

    def seen(self, variant: int) -> NDArray[np.uint8]:
        """Return, for each record, whether its first sequence was seen in a bucket of a variant,
        uint8[records]. The index is the ordinal. For variant 0, use `rows["seen"]`."""
        return mapped(self.work / f"seen-{variant}", np.dtype(np.uint8))[: self.records]

    @property
    def split_long(self) -> bool:
        """True if long records are cut into several sequences."""
        return self.long == "split"

    def has_random_window(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the records that --long crop cut to a random window, bool[N].

        Args:
            rows: ROW[N], facts of the records.
        """
        longer: NDArray[np.bool_] = rows["residues"] > self.longest_piece
        return longer & (self.long == "crop")

    def of_one_generation(
        self, one: NDArray[np.int64], other: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return whether one build or append read both records of each pair, bool[N].

        Args:
            one, other: int64[N], ordinals.
        """
        ends = np.array(self.generations, dtype=np.int64)
        first, second = (np.searchsorted(ends, each, side="right") for each in (one, other))
        same: NDArray[np.bool_] = first == second
        return same

    @property
    def compares_first_pieces(self) -> bool:
        """True if the first pieces of different records are compared."""
        return self.dedup_cropped or self.clusters

    @property
    def first_pieces(self) -> NDArray[Any]:
        """HASH_HALVES[records], hash of the first max_seq_len - 2 residues of each kept record, or
        0 if --long crop kept a random window. The work file exists only if
        `compares_first_pieces` is True."""
        return mapped(self.work / "first-pieces", HASH_HALVES)[: self.records]


def _boundaries(manifest: Manifest) -> tuple[int, ...]:
    """See `DeepJob.generations`. A compaction leaves no files of earlier generations."""
    builds = {entry.name.partition("/")[2].partition("-")[0] for entry in manifest.records}
    return tuple(entry.records for entry in manifest.history if entry.build in builds)


def _names(manifest: Manifest, option: FileOption) -> tuple[str, ...]:
    """Return the names of the files that an option named."""
    return tuple(entry.name for entry in manifest.named_files if entry.option == option)
