"""`thdpack gc`: remove the files that no kept generation needs.

A generation is kept if it is one of the last `keep` generations, or if it was replaced less than
`grace` seconds ago. The latest generation is always kept. A file younger than `grace` stays, too,
even if no kept generation needs it, because a running build may have written it. Readers that have
mapped a removed shard from a local disk can still read it.

Intermediate files of abandoned builds are removed, too (see `unfinished_builds.py`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from pipeline.build.destination.destination import open_destination
from pipeline.build.destination.file_patterns import is_dataset_file
from pipeline.build.garbage.list_files import change_times
from pipeline.build.garbage.unfinished_builds import (
    UnfinishedBuilds,
    find_unfinished,
    remove_unfinished,
)
from pipeline.build.hash_index.index_runs import INDEX
from pipeline.build.hash_index.index_state import STATE, read_state
from pipeline.storage.folder import Folder
from pipeline.storage.read_manifest import generation_name, read_manifest
from pipeline.storage.retries import AT_ONCE
from schemas.errors import BuildError, ManifestError
from schemas.manifest import GENERATIONS, Manifest
from schemas.records import RETIRED
from schemas.shard import SPLITS

_OTHER_FILE: Final = re.compile(
    rf"{GENERATIONS}/\d+\.json|{INDEX}/([0-9a-f]{{16}}\.arrow|index\.json)"
)
"""Names of files of generations and of the hash index."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Garbage:
    """Result of a collection.

    kept: numbers of the kept generations
    dropped: numbers of the generations that are or would be removed
    files: size in bytes of each file that is or would be removed, by name
    waiting: number of files that no kept generation needs, but that are too young to be removed
    unfinished: intermediate files of unfinished builds
    """

    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    files: dict[str, int]
    waiting: int
    unfinished: UnfinishedBuilds

    @property
    def bytes(self) -> int:
        """Size in bytes of everything that is or would be removed."""
        return sum(self.files.values()) + sum(self.unfinished.old.values())


def collect_garbage(dataset: str, *, keep: int, grace: float, delete: bool) -> Garbage:
    """Find the files that no kept generation needs, and remove them if `delete` is True.

    Args:
        keep: number of last generations to keep, at least 1.
        grace: seconds; see the module's docstring.
    Raises:
        DatasetError: the dataset is missing or damaged, or its folder cannot be listed.
        BuildError: a build is running, or a file cannot be removed.
    """
    destination = open_destination(dataset)
    read_manifest(dataset)  # if the folder is not a dataset, the error explains why
    with destination.claim():
        found = _find(destination.out, read_manifest(dataset), keep, time.time() - grace)
        if delete:
            _remove(destination.out, found)
        return found


def _find(out: Folder, latest: Manifest, keep: int, before: float) -> Garbage:
    """Return the garbage of a dataset.

    Args:
        latest: manifest of the latest generation.
        before: time in seconds since 1970. Files that changed later stay.
    """
    files = change_times(out, (*SPLITS, "records", RETIRED, GENERATIONS, INDEX))
    kept, dropped = [latest.generation], []
    named = {entry.name for entry in latest.files()}
    for number in range(latest.generation - 1, 0, -1):
        name = generation_name(number)
        if name not in files:
            continue
        # this file is written just before the generation is replaced, so its time is that moment
        if number > latest.generation - keep or files[name][1] >= before:
            kept.append(number)
            named |= {name, *names_of_generation(out, number)}
        else:
            dropped.append(number)
    state = read_state(out, latest.records)
    named |= {STATE, *(run.name for run in state.runs)}
    unnamed = {name: facts for name, facts in files.items() if _is_unnamed(name, named)}
    old = {name: size for name, (size, changed) in unnamed.items() if changed < before}
    return Garbage(
        kept=tuple(sorted(kept)),
        dropped=tuple(sorted(dropped)),
        files=dict(sorted(old.items())),
        waiting=len(unnamed) - len(old),
        unfinished=find_unfinished(out, before),
    )


def _is_unnamed(name: str, named: set[str]) -> bool:
    """Return whether a build wrote a file that no kept generation needs. All other files stay."""
    if name in named:
        return False
    folder, _, own = name.partition("/")
    if folder in (GENERATIONS, INDEX):
        return _OTHER_FILE.fullmatch(name) is not None
    return is_dataset_file(folder, own)


def names_of_generation(out: Folder, generation: int) -> Iterator[str]:
    """Yield the names of a generation's files.

    Raises:
        ManifestError: the manifest is damaged. Nothing is removed then.
    """
    name = generation_name(generation)
    content = out.content(name)
    if content is None:
        raise ManifestError(f"{out.where(name)}: is gone; run the same command again")
    yield from (entry.name for entry in Manifest.from_json(content, where=out.where(name)).files())


def _remove(out: Folder, garbage: Garbage) -> None:
    """Remove garbage: manifests first, so that no manifest names files that are gone.

    Raises:
        BuildError: a file cannot be removed.
    """
    manifests = [name for name in garbage.files if name.startswith(f"{GENERATIONS}/")]
    others = [name for name in garbage.files if name not in manifests]
    try:
        # before their shards, because a task without its marker runs again
        remove_unfinished(out, garbage.unfinished.old)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(out.remove, manifests))
            list(threads.map(out.remove, others))
    except OSError as error:
        raise BuildError(
            f"cannot remove {error.filename}: {error.strerror}; make its folder writable, then run "
            "the same command again"
        ) from error
