"""Compare the space that a build needs with the free space, before the build begins.

The figures are for protein FASTA: for each byte, intermediate files take about 0.6 bytes, and the
dataset takes 0.95 bytes (docs/benchmarks.md). Intermediate files are removed only after the commit.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipeline.build.build_plan import Plan
from pipeline.build.options import PreprocessOptions
from pipeline.storage.atomic_write import nearest_existing
from schemas.errors import BuildError
from schemas.manifest import WORK, Manifest
from schemas.shard import SPLITS

_SPILLED: Final = 0.6
_RECORDS: Final = 0.12
_SHARDS: Final = 0.83
_LEAST: Final = 0.6
"""Share of the estimate that a build needs at least. With duplicates, filters, or long headers, it
needs less than the estimate."""
_LEAST_RATIO: Final = 1.5
"""Smallest ratio of decompressed to compressed size that is expected of an archive."""


def check_free_space(
    options: PreprocessOptions, planned: Plan, folder: Path, existing: Manifest | None
) -> None:
    """Refuse a build in a local folder whose disk cannot hold its files.

    If options select records, nobody knows the size of the shards, and only the other files are
    estimated. Files that an interrupted build left count as space that is no longer needed.

    Raises:
        BuildError: the disk has less free space than the build needs at least.
    """
    text = sum(
        source.bytes * (1 if source.compression == "none" else _LEAST_RATIO)
        for source in planned.sources
    )
    selects = options.where or options.exclude or options.sample_clusters or options.long == "drop"
    zstd = 0.53 if options.compression == "zstd" else 1
    shards = 0 if selects else _SHARDS * options.variants * zstd
    needed = int(_LEAST * text * (_SPILLED + _RECORDS + shards)) - _written(folder, existing)
    free = shutil.disk_usage(nearest_existing(folder)).free
    if free < needed:
        raise BuildError(
            f"{folder}: the disk has {free / 1e6:,.1f} MB of free space, but this build needs at "
            f"least {needed / 1e6:,.1f} MB for intermediate files and the dataset; make room, or "
            "choose another --out"
        )


def _written(folder: Path, existing: Manifest | None) -> int:
    """Return the size in bytes of the files that an interrupted build left in a dataset's folder.

    Args:
        existing: manifest of the dataset that the folder holds; its files are not counted.
    """
    committed = {entry.name for entry in existing.files()} if existing is not None else set()
    return sum(
        size
        for name in (WORK, "records", *SPLITS)
        for path, size in _files(folder / name)
        if f"{name}/{path}" not in committed
    )


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield name and size of each file of a folder."""
    if folder.is_dir():
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield entry.name, entry.stat(follow_symlinks=False).st_size
