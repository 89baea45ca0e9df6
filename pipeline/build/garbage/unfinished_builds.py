"""Find and remove the intermediate files of builds that were abandoned.

In a store, each unfinished build has a folder `.build/<digest>`. A local dataset has one folder
`.build` for all builds, and a lock shows whether a build runs. A store has no locks, so a build may
be running if one of its files is younger than the grace period.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.build.build_plan import planned_here
from pipeline.build.destination.file_patterns import TEMPORARY_FILE, WORK_FILE
from pipeline.build.garbage.list_files import change_times
from pipeline.storage.folder import Folder
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.object_folder import ObjectFolder
from schemas.errors import DatasetError
from schemas.manifest import WORK

_WORK_FOLDER: Final = re.compile(rf"({WORK}/[0-9a-f]{{16}}/).+")
_SHARED: Final = re.compile(rf"{WORK}/(stdin-[0-9a-f]{{32}}|shared-[0-9a-f]{{32}}\.tmp)")
"""Objects of builds beside their folders. The names do not say to which build they belong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnfinishedBuilds:
    """Intermediate files of unfinished builds.

    old: size in bytes of each folder or file that is or would be removed, by name; names of
        folders end with a slash
    young: number of folders with a file that is younger than the grace period
    listed: True if the task list of an array job is unfinished; then, nothing is removed
    """

    old: Mapping[str, int]
    young: int
    listed: bool


def find_unfinished(out: Folder, before: float) -> UnfinishedBuilds:
    """Find the intermediate files of unfinished builds. The destination must be claimed.

    Args:
        out: the dataset's folder.
        before: time in seconds since 1970. A build with a file that changed later stays.
    Raises:
        DatasetError: the folder cannot be listed.
    """
    if planned_here(out) is not None:
        # tasks of an array job may wait for days until the scheduler starts them
        return UnfinishedBuilds(old={}, young=0, listed=True)
    builds, shared = _builds(out)
    old = {name: size for name, (size, changed) in builds.items() if changed < before}
    if len(old) == len(builds):  # otherwise, a running build may need the shared objects
        old |= {name: size for name, (size, changed) in shared.items() if changed < before}
    young = sum(changed >= before for _, changed in builds.values())
    return UnfinishedBuilds(old=dict(sorted(old.items())), young=young, listed=False)


def remove_unfinished(out: Folder, names: Iterable[str]) -> None:
    """Remove folders and files that `find_unfinished` found.

    Raises:
        OSError, BuildError: a file cannot be removed.
    """
    for name in names:
        if isinstance(out, LocalFolder):
            for path in _work_files(out.path / WORK):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif name.endswith("/") and isinstance(out, ObjectFolder):
            out.sub(name.rstrip("/")).remove_all()
        else:
            out.remove(name)


_Facts = dict[str, tuple[int, float]]
"""Size in bytes, and time of the last change in seconds since 1970, by name."""


def _builds(out: Folder) -> tuple[_Facts, _Facts]:
    """Return facts about the folders of builds, and about the objects beside these folders."""
    if isinstance(out, LocalFolder):
        states = [_state(path) for path in _work_files(out.path / WORK)]
        total = (sum(size for size, _ in states), max((when for _, when in states), default=0.0))
        return ({f"{WORK}/": total} if states else {}), {}
    builds: _Facts = {}
    files = change_times(out, (WORK,))
    for name, (size, changed) in files.items():
        if found := _WORK_FOLDER.fullmatch(name):
            before, latest = builds.get(found[1], (0, 0.0))
            builds[found[1]] = (before + size, max(latest, changed))
    return builds, {name: facts for name, facts in files.items() if _SHARED.fullmatch(name)}


def _work_files(folder: Path) -> list[Path]:
    """Return the files and folders of a local work folder that a build wrote.

    Raises:
        DatasetError: the folder cannot be listed.
    """
    patterns = (WORK_FILE, TEMPORARY_FILE)
    try:
        return [p for p in folder.iterdir() if any(each.fullmatch(p.name) for each in patterns)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be listed: {error.strerror}") from error


def _state(path: Path) -> tuple[int, float]:
    """Return the size of a file or folder, and the time of the last change inside."""
    own = path.lstat()
    size, changed = 0 if path.is_dir() else own.st_size, own.st_mtime
    for folder, _, names in os.walk(path):
        for name in names:
            state = os.lstat(os.path.join(folder, name))
            size, changed = size + state.st_size, max(changed, state.st_mtime)
    return size, changed
