"""Measure coverage: the number of residues of kept records that a dataset's variants contain.

The windows of long records are computed from records/ and the seed, so shards are not read. With
--sample-clusters, the counts of residues and of cluster members are read from the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import shuffle_keys, variant_seed, window_starts
from pipeline.build.reduce_stage.spilled_records import hash_column
from pipeline.report.model_coverage import ClusterCoverage, Coverage
from schemas.manifest import Manifest
from schemas.records import Status

_COLUMNS: Final = ("ordinal", "residues", "hash", "status")
_BATCH_WINDOWS: Final = 1 << 22
"""Maximum number of windows that are computed at a time, which bounds memory."""


def coverage(manifest: Manifest, paths: Sequence[Path]) -> Coverage | None:
    """Return the coverage of a dataset with several variants, with random windows, or with
    --sample-clusters; None for any other dataset.

    Args:
        paths: files of records/.
    """
    sampled = manifest.sampled_clusters
    if manifest.variants == 1 and manifest.options["long"] != "crop" and sampled is None:
        return None
    numbers = [1 << i for i in range(manifest.variants.bit_length())]
    if numbers[-1] != manifest.variants:
        numbers.append(manifest.variants)
    residues, shown = 0, dict.fromkeys(numbers, 0)
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(
                max(1, _BATCH_WINDOWS // manifest.variants), columns=list(_COLUMNS)
            ):
                kept = batch.filter(_is_kept(batch))
                lengths = kept.column("residues").to_numpy()
                residues += int(lengths.sum())
                if sampled is not None:
                    continue
                for number, count in _shown(manifest, kept, lengths, numbers).items():
                    shown[number] += count
    if sampled is None:
        return Coverage(variants=manifest.variants, residues=residues, shown=shown)
    return Coverage(
        variants=manifest.variants,
        residues=residues,
        shown={number: sampled.residues_shown[number - 1] for number in numbers},
        sampled=ClusterCoverage(
            clusters=sampled.clusters,
            members=sampled.members,
            shown={number: sampled.members_shown[number - 1] for number in numbers},
        ),
    )


def _is_kept(batch: pa.RecordBatch) -> pa.Array:
    """Return a mask of the kept records."""
    return pc.equal(batch.column("status").cast(pa.string()), Status.KEPT.value)


def _shown(
    manifest: Manifest, kept: pa.RecordBatch, lengths: NDArray[np.int64], numbers: Sequence[int]
) -> dict[int, int]:
    """Return, for each n of `numbers`, how many residues of some records the first n variants have.

    Args:
        kept: N rows of records/.
        lengths: int64[N], number of residues of each record.
    """
    most = manifest.longest_piece
    if manifest.options["long"] != "crop":
        visible = lengths if manifest.options["long"] == "split" else np.minimum(lengths, most)
        return dict.fromkeys(numbers, int(visible.sum()))
    whole = int(lengths[lengths <= most].sum())
    long = kept.filter(pa.array(lengths > most))
    starts = _starts(manifest, long)
    return {number: whole + _union(starts[:number], most) for number in numbers}


def _starts(manifest: Manifest, long: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the first residue of the window of each long record, int64[variants, N]."""
    hashes = hash_column(pa.chunked_array([long.column("hash")]))
    ordinals, residues = (long.column(name).to_numpy() for name in ("ordinal", "residues"))
    starts = np.empty((manifest.variants, long.num_rows), dtype=np.int64)
    for variant in range(manifest.variants):
        seed = variant_seed(manifest.seed, variant)
        keys = shuffle_keys(hashes, ordinals, np.zeros_like(ordinals), seed)
        starts[variant] = window_starts(keys, residues, manifest.longest_piece)
    return starts


def _union(starts: NDArray[np.int64], most: int) -> int:
    """Return the number of residues in at least one window, summed over records.

    Args:
        starts: int64[V, N], first residue of each of V windows of N records.
        most: number of residues in a window.
    """
    gaps = np.diff(np.sort(starts, axis=0), axis=0)
    return int(np.minimum(gaps, most).sum()) + int(starts.shape[1]) * most
