"""Find files in a dataset's folder that no generation names, for a note of `thdpack verify`."""

from __future__ import annotations

from pathlib import Path

from pipeline.build.destination.file_patterns import TEMPORARY_FILE
from pipeline.build.garbage.collect_garbage import names_of_generation
from pipeline.build.garbage.list_files import change_times
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.open_folder import folder_of
from pipeline.storage.read_manifest import generation_name, read_manifest
from schemas.errors import DatasetError
from schemas.manifest import GENERATIONS
from schemas.records import RETIRED
from schemas.shard import SPLITS


def unnamed_files(dataset: str | Path) -> list[str]:
    """Return the names of files among the shards and records of a local dataset that no generation
    names, in byte order.

    The list is empty for a dataset in a store, whose files are expensive to list, and if the
    manifest of a generation is damaged.
    """
    out = folder_of(dataset)
    if not isinstance(out, LocalFolder):
        return []
    try:
        found = change_times(out, (*SPLITS, "records", RETIRED, GENERATIONS))
        latest = read_manifest(dataset)
        named = {entry.name for entry in latest.files()}
        for number in range(1, latest.generation):
            if generation_name(number) in found:
                named.update(names_of_generation(out, number))
    except DatasetError:
        return []
    return sorted(
        name
        for name in found.keys() - named
        if not name.startswith(f"{GENERATIONS}/") and not _is_hidden(name.rpartition("/")[2])
    )


def _is_hidden(name: str) -> bool:
    """Return whether a file is hidden, or a build is writing it."""
    return name.startswith(".") or TEMPORARY_FILE.fullmatch(name) is not None
