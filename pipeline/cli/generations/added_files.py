"""Find the size of the files that each generation added, and the time at which they were written.

A manifest has no time, so that equal builds have equal bytes. Times come from the files, and
copying a dataset changes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.build.garbage.list_files import change_times
from pipeline.storage.folder import Folder
from pipeline.storage.read_manifest import generation_name
from schemas.manifest import GENERATIONS
from schemas.manifest_entries import GenerationEntry
from schemas.records import RETIRED
from schemas.shard import SPLITS


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedFiles:
    """Files that a generation added, and that still exist.

    bytes: total size of its shards and of its files in records/ and retired/
    written: time at which the last of its files was written, just before the commit, in seconds
        since 1970; None if no such file exists or the store reports no time
    """

    bytes: int
    written: float | None


def added_files(out: Folder, entries: Sequence[GenerationEntry]) -> list[AddedFiles]:
    """Return the files that each generation added.

    Args:
        out: the dataset's folder.
        entries: entries of all generations, beginning with generation 1.
    Raises:
        DatasetError: the folder cannot be listed.
    """
    sizes: dict[str, int] = {}
    times: dict[str, float] = {}
    listed = change_times(out, (*SPLITS, "records", RETIRED, GENERATIONS))
    for name, (size, changed) in listed.items():
        build = name.partition("/")[2].partition("-")[0]
        sizes[build] = sizes.get(build, 0) + size
        times[build] = max(times.get(build, 0.0), changed)
    found = []
    for number, entry in enumerate(entries, 1):
        # the commit of a generation writes a copy of the manifest of the generation before it
        _, copied = listed.get(generation_name(number - 1), (0, 0.0))
        written = max(times.get(entry.build, 0.0), copied)
        known = written if 0 < written < math.inf else None
        found.append(AddedFiles(bytes=sizes.get(entry.build, 0), written=known))
    return found
