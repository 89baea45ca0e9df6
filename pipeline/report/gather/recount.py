"""`thdpack stats --read-tokens`: count the contents of shards, and compare with the manifest.

The recount reads all shards of a local dataset, at about 1 GB/s, and finds wrong numbers in the
manifest. Use `thdpack verify` to find damaged files and invalid buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.arrays.hash_kernel import count_values
from pipeline.build.split_statistics import SplitStatistics
from pipeline.storage.urls import local_path
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.manifest_entries import ShardEntry, SplitTotals


def recount(url: str, manifest: Manifest) -> None:
    """Count letters, buckets, sequences and tokens in the shards, and compare with the manifest.

    Raises:
        DatasetError: a count differs, a shard cannot be read, or the dataset is not on a local
            disk.
    """
    folder = local_path(url)
    if folder is None:
        raise DatasetError(
            f"{url}: --read-tokens reads datasets on local disks only; "
            "copy the dataset to a disk, or check the remote dataset with `thdpack verify`"
        )
    letters = np.zeros(256, dtype=np.int64)
    for split, entries in manifest.shards.items():
        found = _totals(folder, entries, manifest, letters)
        wrong = [
            name
            for name in SplitTotals.__dataclass_fields__
            if getattr(found, name) != getattr(manifest.splits[split], name)
        ]
        if wrong:
            counted, stated = getattr(found, wrong[0]), getattr(manifest.splits[split], wrong[0])
            raise DatasetError(
                f"{url}: the shards of {split} have {wrong[0]} = {counted:,}, but "
                f"the manifest says {stated:,}: the dataset is damaged; build it again"
            )
    vocabulary = manifest.vocabulary_object
    for i in vocabulary.in_sequence:
        token = vocabulary.tokens[i]
        stated = manifest.residue_counts.get(token, 0)
        if letters[i] != stated:
            raise DatasetError(
                f"{url}: the shards hold {letters[i]:,} tokens {token}, but the manifest says "
                f"{stated:,}: the dataset is damaged; build it again"
            )


def _totals(
    folder: Path, entries: Iterable[ShardEntry], manifest: Manifest, letters: NDArray[np.int64]
) -> SplitTotals:
    """Return the totals of a split's shards. Add the count of each token id to `letters`.

    letters: int64[256], number of occurrences of each token id
    """
    statistics = SplitStatistics(capacity=manifest.capacity, longest=manifest.capacity)
    for batch in shard_batches(folder, entries):
        _add(statistics, batch, letters)
    return statistics.totals()


def shard_batches(folder: Path, entries: Iterable[ShardEntry]) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of shards. A batch is valid until the next batch is requested.

    Raises:
        DatasetError: a shard cannot be read.
    """
    for entry in entries:
        try:
            with pa.memory_map(str(folder / entry.name)) as file:
                reader = pa.ipc.open_file(file)
                for i in range(reader.num_record_batches):
                    yield reader.get_batch(i)
        except (pa.ArrowInvalid, OSError, KeyError) as error:
            raise DatasetError(
                f"{folder / entry.name}: not a readable shard: {error}; run thdpack verify"
            ) from error


def _add(statistics: SplitStatistics, batch: pa.RecordBatch, letters: NDArray[np.int64]) -> None:
    count_values(batch.column("input_ids").values.to_numpy(), letters)
    seqs = batch.column("num_seqs").to_numpy().astype(np.int64)
    edges = batch.column("cu_seqlens").values.to_numpy().astype(np.int64)
    offsets = batch.column("cu_seqlens").offsets.to_numpy().astype(np.int64)
    # np.diff also returns differences across bucket borders. These differences are outside the
    # ranges whose sums are computed below.
    squares = np.concatenate(([0], np.cumsum(np.diff(edges, append=0) ** 2)))
    statistics.add_costs(squares[offsets[:-1] + seqs] - squares[offsets[:-1]])
    statistics.sequences += int(seqs.sum())
    statistics.tokens += int(batch.column("num_tokens").to_numpy().astype(np.int64).sum())
    statistics.seqs_max = max(statistics.seqs_max, int(seqs.max()))
    statistics.pieces_max = max(statistics.pieces_max, int(np.diff(offsets).max()) - 1)
