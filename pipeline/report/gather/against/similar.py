"""Find the records of a dataset that are similar to a sequence of `--against mmseqs:FILE`.

MMseqs2 compares the sequences in the shards of a local dataset with the entries of the file, with
the settings of `--exclude mmseqs:FILE`. Shards hold the kept records only, after cropping. The
folder for temporary files needs room for the sequences of all shards.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import HASH, sequence_hashes
from pipeline.build.mmseqs.binary import find_mmseqs
from pipeline.build.options import DatasetOptions
from pipeline.build.progress.reporter import Reporter
from pipeline.build.search_stage.kept_records import fasta_entries
from pipeline.build.search_stage.similar_pairs import Search, similar_pairs
from pipeline.build.verify.bucket_sequences import bucket_sequences
from pipeline.build.verify.check_shards import bucket_rules
from pipeline.executors.processes import cores
from pipeline.report.gather.against.read_entries import entry_blocks
from pipeline.report.gather.recount import shard_batches
from pipeline.report.model_leaks import SimilarEntries
from pipeline.storage.read_manifest import read_manifest
from pipeline.storage.urls import local_path
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.shard import SPLITS
from schemas.text.generation import Generation

_IDENTITY: Final = DatasetOptions.exclude_identity
_COVERAGE: Final = DatasetOptions.exclude_coverage


def refuse_unsearchable(url: str) -> str:
    """Check that a dataset can be searched. Return the path of MMseqs2.

    Raises:
        BuildError: MMseqs2 is not installed.
        DatasetError: the dataset is not on a local disk.
    """
    if local_path(url) is None:
        raise DatasetError(
            f"{url}: --against mmseqs:… reads the shards of datasets on local disks only; to "
            "look for equal sequences, omit the prefix mmseqs:"
        )
    return find_mmseqs("against")


def similar_entries(
    url: str, generation: Generation, name: str, progress: Reporter
) -> SimilarEntries:
    """Count the entries of the file `name` that are similar to kept records of a dataset.

    Raises:
        InputError, DatasetError, BuildError: a file cannot be read, or MMseqs2 failed.
    """
    mmseqs, folder = refuse_unsearchable(url), local_path(url)
    assert folder is not None
    manifest = read_manifest(url, generation)
    with tempfile.TemporaryDirectory(prefix="thdpack-stats-") as made:
        scratch = Path(made)
        queries, targets = scratch / "records", scratch / "entries"
        entries = _write_entries(name, targets)
        progress.phase("search", sum(split.tokens for split in manifest.splits.values()))
        _write_records(folder, manifest, queries, progress)
        search = Search(
            mmseqs=mmseqs,
            queries=queries,
            targets=targets,
            option=f"--against {name}",
            scratch=scratch,
            identity=_IDENTITY,
            coverage=_COVERAGE,
            threads=cores(),
        )
        return _counted(search, entries)


def _write_entries(name: str, path: Path) -> NDArray[np.int64]:
    """Write each distinct sequence of a file once. The id of a sequence is its index among these
    sequences.

    Returns:
        int64[E], for each sequence the number of the file's entries that have it.
    """
    counts: dict[bytes, int] = {}
    with path.open("wb") as file:
        for block in entry_blocks(name):
            hashes = sequence_hashes(block.tokens, block.ends)
            digests = np.ascontiguousarray(hashes, dtype=HASH).tobytes()
            edges = np.concatenate(([0], block.ends))
            first, new = len(counts), []
            for row in np.flatnonzero(np.diff(edges)).tolist():
                digest = digests[HASH.itemsize * row : HASH.itemsize * (row + 1)]
                if digest not in counts:
                    new.append(row)
                counts[digest] = counts.get(digest, 0) + 1
            rows = np.array(new, dtype=np.int64)
            file.writelines(fasta_entries(first + np.arange(rows.size), block.tokens, edges, rows))
    return np.array(list(counts.values()), dtype=np.int64)


def _write_records(folder: Path, manifest: Manifest, path: Path, progress: Reporter) -> None:
    """Write the sequences of all shards.

    The id of a sequence is the record's ordinal (its number among all input records) · len(SPLITS)
    + the index of the split.
    """
    rules = bucket_rules(manifest)
    with path.open("wb") as file:
        for split, entries in manifest.shards.items():
            for batch in shard_batches(folder, entries):
                found = bucket_sequences(batch, rules)
                names = found.ordinal * len(SPLITS) + SPLITS.index(split)
                edges = np.stack((found.begin, found.end), axis=1).ravel()
                rows = 2 * np.arange(names.size)
                file.writelines(fasta_entries(names, found.ids, edges, rows))
                progress.advance(int((found.end - found.begin).sum()))


def _counted(search: Search, entries: NDArray[np.int64]) -> SimilarEntries:
    """Run a search, and count its results.

    Args:
        entries: int64[E], for each sequence the number of the file's entries that have it.
    """
    similar = np.zeros((len(SPLITS), entries.size), dtype=np.bool_)
    records = [np.empty(0, dtype=np.int64)]
    for queries, targets in similar_pairs(search):
        similar[queries % len(SPLITS), targets] = True
        records.append(np.unique(queries))
    split_of_record = np.unique(np.concatenate(records)) % len(SPLITS)
    return SimilarEntries(
        identity=_IDENTITY,
        coverage=_COVERAGE,
        in_splits={split: int(entries[similar[i]].sum()) for i, split in enumerate(SPLITS)},
        in_kept=int(entries[similar.any(axis=0)].sum()),
        records={
            split: int(np.count_nonzero(split_of_record == i)) for i, split in enumerate(SPLITS)
        },
    )
