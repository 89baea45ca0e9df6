"""The report of a dataset: its manifest, and its records/ read by polars a piece at a time. Shards are not read.

Costs about 0.2 s and a fifth of a gigabyte for half a million records. records/ of a remote dataset are fetched into a temporary folder first.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from pipeline.report.gather.assemble import Facts, costs_of, most_repeated, settings_of
from pipeline.report.gather.budget import budget
from pipeline.report.gather.compare import Side
from pipeline.report.gather.composition import composition
from pipeline.report.gather.lengths import Counted, lengths_report, sequences_of
from pipeline.report.gather.splits import cost_counts, split_report, together
from pipeline.report.gather.waste import waste
from pipeline.report.model import TOP, DuplicateFlow, RecordNote, Report, SplitReport
from pipeline.storage.file_hash import difference, hash_file
from pipeline.storage.read_manifest import read_manifest
from pipeline.storage.retries import Remote
from pipeline.storage.urls import local_path
from schemas import __version__
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.manifest_entries import RecordsEntry
from schemas.records import Status


def dataset_report(url: str) -> Report:
    """The report of the dataset at a path or URL.

    Raises:
        DatasetError: it is incomplete or damaged, or the store cannot be reached; ManifestError: there is no manifest, or none to trust.
    """
    manifest = read_manifest(url)
    with records_files(url, manifest) as paths:
        return _report(url, manifest, _facts(url, manifest, paths))


def dataset_side(url: str) -> Side:
    """The same for a comparison: with the hash of every record.

    Raises:
        DatasetError: as above.
    """
    import pyarrow.parquet as pq  # here, with what packs: a report alone needs neither

    from pipeline.build.reduce_stage.spilled_records import hash_column

    manifest = read_manifest(url)
    with records_files(url, manifest) as paths:
        report = _report(url, manifest, _facts(url, manifest, paths))
        tables = [pq.read_table(path, columns=["hash", "residues"]) for path in paths]
    return Side(
        report,
        np.concatenate([hash_column(table.column("hash")) for table in tables]),
        np.concatenate([table.column("residues").to_numpy() for table in tables]),
    )


def _report(url: str, manifest: Manifest, facts: Facts) -> Report:
    """Put together what manifest and records/ say.

    Raises:
        DatasetError: they contradict each other.
    """
    settings = settings_of(manifest.vocabulary, manifest.options)
    totals = together(manifest.splits.values())
    sequences = sequences_of(facts.kept, max_seq_len=settings.max_seq_len, long=settings.long)
    if (sequences.number, sequences.total) != (totals.sequences, totals.tokens):
        raise DatasetError(
            f"{url}: records/ make {sequences.number:,} sequences of {sequences.total:,} tokens, "
            f"the manifest says {totals.sequences:,} of {totals.tokens:,}: damaged, build it again"
        )
    return Report(
        kind="dataset",
        name=url,
        thdpack=__version__,
        manifest_digest=manifest.digest,
        build=manifest.build,
        parent=manifest.parent,
        generation=manifest.generation,
        slots=manifest.slots,
        settings=settings,
        records=facts.all_in.number,
        by_status=facts.by_status,
        inputs=facts.inputs([(entry.name, entry.bytes) for entry in manifest.inputs]),
        cropped_copies=manifest.cropped_copies,
        residues_in=facts.all_in.total,
        residues_kept=manifest.residues_kept,
        tokens=totals.tokens,
        lengths=lengths_report(facts.all_in, facts.kept, settings),
        composition=composition(
            manifest.residue_counts,
            over="buckets",
            unknown_records=facts.unknown_records,
            unknown_residues=facts.unknown_residues,
        ),
        splits=tuple(_split(manifest, name) for name in manifest.splits),
        waste=waste(
            sequences, totals, cost_counts(costs_of(manifest.histograms)), settings, predicted=False
        ),
        budget=budget(manifest.splits["train"].tokens if "train" in manifest.splits else 0),
        longest=facts.longest,
        repeated=facts.repeated,
        duplicates=facts.duplicates,
        prediction=None,
    )


def _split(manifest: Manifest, name: str) -> SplitReport:
    entries = manifest.shards[name]
    size = sum(entry.bytes for entry in entries)
    return split_report(
        name,
        manifest.splits[name],
        manifest.histograms.get(name, {}),
        capacity=manifest.capacity,
        shards=len(entries),
        shard_bytes=size,
    )


_FETCHED_AT_ONCE: Final = 8
"""Remote files; each waits for the store more than it reads."""


@contextmanager
def records_files(url: str, manifest: Manifest) -> Iterator[list[Path]]:
    """Verified local copies of records/, for as long as the context lasts; of a local dataset the files themselves.

    Raises:
        DatasetError: a file is missing, or not the one that the manifest names.
    """
    folder = local_path(url)
    if folder is not None:
        _check_local(folder, manifest)
        yield [folder / entry.name for entry in manifest.records]
        return
    with tempfile.TemporaryDirectory(prefix="thdpack-stats-") as scratch:
        remote = Remote(url, threading.Event())
        places = [Path(scratch) / f"{i}.parquet" for i in range(len(manifest.records))]
        with ThreadPoolExecutor(_FETCHED_AT_ONCE) as threads:
            try:
                paths = list(threads.map(partial(_fetched, remote), manifest.records, places))
            except BaseException:
                remote.stopped.set()  # or leaving would wait for those under way
                raise
        yield paths


def _check_local(folder: Path, manifest: Manifest) -> None:
    """Every file is there in its size, and records/ hold what they should. What is in shards, `thdpack verify` checks."""
    for entry in manifest.files():
        path = folder / entry.name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise DatasetError(
                f"{path}: {os.strerror(error.errno or 0)}: the dataset is incomplete, build it again"
            ) from error
        digest = (
            hash_file(path)[1]
            if isinstance(entry, RecordsEntry) and size == entry.bytes
            else entry.xxh3_128
        )
        problem = difference(path, size, digest, entry)
        if problem is not None:
            raise DatasetError(f"{problem}; build it again")


def _fetched(remote: Remote, entry: RecordsEntry, path: Path) -> Path:
    """A remote file at a local path, verified; fetched again where it differs."""

    def fetch() -> Path:
        digest, size = xxhash.xxh3_128(), 0
        with open(path, "wb") as file:
            for piece in remote.pieces(entry.name):
                digest.update(piece)
                size += file.write(piece)
        problem = difference(f"{remote.url}/{entry.name}", size, digest.hexdigest(), entry)
        if problem is not None:
            raise DatasetError(problem)
        return path

    return remote.with_retries(entry.name, fetch)


_FILES_TOGETHER: Final = 32
"""records/ files whose duplicates are counted at once: some 4 million rows."""
_NOTE: Final = ("ordinal", "id", "source", "residues", "status")


def _facts(url: str, manifest: Manifest, paths: list[Path]) -> Facts:
    """What records/ say.

    Raises:
        DatasetError: they contradict the manifest.
    """
    rows = pl.scan_parquet(paths)
    unknown = pl.col("unknown")
    fates, lengths, top = pl.collect_all(
        [
            rows.group_by("source", "status").agg(
                pl.len().cast(pl.Int64).alias("records"),
                pl.col("residues").sum(),
                unknown.sum(),
                (unknown > 0).sum().alias("with_unknown"),
            ),
            rows.group_by(pl.col("status") == Status.KEPT.value, "residues").agg(
                pl.len().cast(pl.Int64).alias("records")
            ),
            rows.select(_NOTE).sort("residues", "ordinal", descending=[True, False]).head(TOP),
        ],
        engine="streaming",
    )
    found = {
        status: int(fates.filter(pl.col("status") == status.value)["records"].sum())
        for status in Status
    }
    if (
        found != dict(manifest.records_by_status)
        or int(fates["residues"].sum()) != manifest.residues_in
    ):
        raise DatasetError(
            f"{url}: records/ hold other records than the manifest counts: damaged, build it again"
        )
    times, duplicates = _duplicates(url, manifest, paths)
    return Facts(
        fates={
            (row["source"], row["status"]): (row["records"], row["residues"])
            for row in fates.iter_rows(named=True)
        },
        all_in=_counted(lengths),
        kept=_counted(lengths.filter(pl.col("status"))),
        unknown_records=int(fates["with_unknown"].sum()),
        unknown_residues=int(fates["unknown"].sum()),
        longest=tuple(_note(row, times) for row in top.iter_rows(named=True)),
        repeated=_repeated(rows, times),
        duplicates=duplicates,
    )


def _counted(lengths: pl.DataFrame) -> Counted:
    return Counted.of(lengths["residues"].to_numpy(), lengths["records"].to_numpy())


def _repeated(rows: pl.LazyFrame, times: NDArray[np.uint32]) -> tuple[RecordNote, ...]:
    """The records with the most duplicates."""
    most = most_repeated(times)
    if not most:
        return ()
    found = rows.select(_NOTE).filter(pl.col("ordinal").is_in(most)).collect(engine="streaming")
    by_ordinal = {row["ordinal"]: _note(row, times) for row in found.iter_rows(named=True)}
    return tuple(by_ordinal[ordinal] for ordinal in most)


def _note(row: dict[str, Any], times: NDArray[np.uint32]) -> RecordNote:
    return RecordNote(**row, times=1 + int(times[row["ordinal"]]) if times.size else 1)


def _duplicates(
    url: str, manifest: Manifest, paths: list[Path]
) -> tuple[NDArray[np.uint32], tuple[DuplicateFlow, ...]]:
    """How many duplicates each record has, uint32[records] by ordinal ([0] where there are none at all), and which input's records are copies of which.

    A few files at a time, for a table of all originals would take more memory than everything else. An input's ordinals are one run, so the
    original's input follows from its ordinal.

    Raises:
        DatasetError: a duplicate of a record that is not there.
    """
    records = (
        sum(manifest.records_by_status.values())
        if manifest.records_by_status[Status.DUPLICATE]
        else 0
    )
    times = np.zeros(records, dtype=np.uint32)
    names = [entry.name for entry in manifest.inputs]
    ends = np.cumsum([entry.records for entry in manifest.inputs])
    pairs: Counter[tuple[str, int]] = Counter()
    for at in range(0, len(paths) if records else 0, _FILES_TOGETHER):
        rows = pl.scan_parquet(paths[at : at + _FILES_TOGETHER]).filter(
            pl.col("duplicate_of").is_not_null()
        )
        copies = (
            rows.group_by(pl.col("source").cast(pl.String), "duplicate_of")
            .agg(pl.len().alias("records"))
            .collect(engine="streaming")
        )
        original = copies["duplicate_of"].to_numpy()
        if original.size and not 0 <= original.min() <= original.max() < records:
            raise DatasetError(
                f"{url}: records/ name a duplicate of record {original.max()}, there are {records:,}: damaged, build it again"
            )
        np.add.at(times, original, copies["records"].to_numpy())
        of = (
            copies.select(
                "source",
                pl.Series("original", np.searchsorted(ends, original, side="right")),
                "records",
            )
            .group_by("source", "original")
            .sum()
        )
        pairs.update({(source, i): count for source, i, count in of.iter_rows()})
    place = {name: i for i, name in enumerate(names)}
    found = sorted(pairs, key=lambda pair: (place[pair[0]], pair[1]))
    return times, tuple(
        DuplicateFlow(source=source, original=names[i], records=pairs[source, i])
        for source, i in found
    )
