"""A folder of a local disk as a place where a dataset is built (see `destination`): held by a lock, cleared by looking at what is there."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from pipeline.build.build_plan import PLAN, Plan
from pipeline.build.options import PreprocessOptions
from pipeline.storage.atomic_write import sync_folder, written_atomically
from pipeline.storage.folder import Folder
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.open_input import input_errors
from schemas.errors import BuildError
from schemas.manifest import MANIFEST_NAME, Manifest
from schemas.shard import SPLITS

WORK: Final = ".build"
"""Where in a dataset's folder work in progress lies."""
_AT_ONCE: Final = 4
_FOLDERS: Final = (WORK, *SPLITS, "records")
_UNFINISHED: Final = re.compile(r".+\.\d+\.tmp|shared-[0-9a-f]{32}\.tmp")
_WORK_FILE: Final = re.compile(
    r"((map|hash|reduce|verify|rest-\d+)-\d{6,}|mapped-[0-9a-f]{16}|plan(-[0-9a-f]{16}-[0-9a-f]{16})?)\.json"
    r"|(map|rest-of-(reduce|rest-\d+))-\d{6,}\.arrow|stdin|thdpack-spill-\w+|\.nfs\w+"
)
_OURS: Final = re.compile(r"[0-9a-f]{16}-(\d{5,}|rest(\d+x\d{5,})?)(-\d+)?\.(arrow|parquet)")


@dataclass(slots=True)
class LocalDestination:
    """A folder of a local disk."""

    path: Path
    _cleared: bool = False

    @property
    def out(self) -> LocalFolder:
        return LocalFolder(self.path, self._scratch)

    @property
    def _scratch(self) -> Path:
        return self.path / WORK

    def manifest(self) -> bytes | None:
        return self.out.content(MANIFEST_NAME)

    @property
    def version_at_start(self) -> None:
        """Whoever replaces the dataset here takes the task list away too."""

    def resume(self, version_at_start: str | None) -> None:
        pass

    @contextmanager
    def claim(self, *, shared: bool = False) -> Iterator[None]:
        lock = self._scratch / "lock"
        self._refuse_links()
        try:
            self._scratch.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise BuildError(f"cannot write to {self.path}: {error.strerror}") from error
        try:
            self._lock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            for unfinished in () if shared else self._scratch.glob("*.tmp"):
                if _UNFINISHED.fullmatch(unfinished.name):
                    unfinished.unlink(missing_ok=True)
            yield
            if self._cleared:
                lock.unlink(missing_ok=True)  # while it is ours
        finally:
            os.close(descriptor)
        if self._cleared:
            with suppress(
                OSError
            ):  # somebody is here again; or NFS, which keeps what was open a little longer
                self._scratch.rmdir()

    def _refuse_links(self) -> None:
        """Refuse folders that are links: what a build removes there would be somebody else's.

        Raises:
            BuildError: names the link.
        """
        for folder in (self.path / name for name in _FOLDERS):
            if folder.is_symlink():
                raise BuildError(
                    f"{folder} is a link; a build writes to and removes from folders of its own only: remove the link, or choose another --out"
                )

    def _lock(self, descriptor: int, how: int) -> None:
        """Lock the file that a descriptor is of, unless another build has.

        Raises:
            BuildError: it has, or there are no locks.
        """
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(descriptor), os.stat(self._scratch / "lock"))
        except (BlockingIOError, FileNotFoundError):
            ours = False
        except OSError as error:
            raise BuildError(
                f"{self.path}: cannot be locked ({error.strerror}): this file system, or its mount, has to know flock"
            ) from error
        if not ours:  # or it was another build's, which took it away when it ended
            raise BuildError(
                f"{self.path}: another build is running here; wait for it, or choose another --out"
            )

    def spool(self, options: PreprocessOptions) -> str | None:
        spooled = spool_stdin(options, self._scratch)
        return None if spooled is None else str(spooled)

    def work_folder(self, planned: Plan, options: PreprocessOptions) -> LocalFolder:
        return LocalFolder(self._scratch, self._scratch)

    def will_replace(self, manifest: Manifest) -> None:
        """What no manifest names is found by looking."""

    def commit(self, manifest: Manifest) -> None:
        for folder in sorted({(self.path / entry.name).parent for entry in manifest.files()}):
            sync_folder(folder)  # every name the manifest mentions is on the disk before it is
        with self.out.written(MANIFEST_NAME) as file:
            file.write(manifest.to_json().encode())
        sync_folder(self.path)

    def clear(self, manifest: Manifest, work: Folder) -> None:
        named = {entry.name for entry in manifest.files()}
        try:
            (self.path / PLAN).unlink(
                missing_ok=True
            )  # first: killed after this, it is known to be done
            files = [
                path
                for folder in ("train", "valid", "records")
                for path in (self.path / folder).glob("*")
            ]
            left = [
                path
                for path in files
                if _OURS.fullmatch(path.name) and str(path.relative_to(self.path)) not in named
            ]
            there = [
                path for path in self._scratch.iterdir() if path.name != "lock"
            ]  # which is ours until we leave
            left += [
                path
                for path in there
                if _WORK_FILE.fullmatch(path.name) or _UNFINISHED.fullmatch(path.name)
            ]
            with ThreadPoolExecutor(_AT_ONCE) as threads:  # the kernel gives back a GB in 0.1 s
                list(threads.map(_remove, left))
        except OSError as error:
            warn_not_removed(error)
        self._cleared = True


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def warn_not_removed(error: Exception) -> None:
    """Say that what a finished build left is still there."""
    logging.getLogger("thdpack").warning(
        "the dataset is complete, but what is left of earlier work could not be removed: %s", error
    )


def spool_stdin(options: PreprocessOptions, folder: Path) -> Path | None:
    """Standard input as a file, if it is one of the inputs: tasks read it twice, and a rerun compares it."""
    if "-" not in options.inputs:
        return None
    spool = folder / "stdin"
    with (
        input_errors("standard input"),
        written_atomically(spool, scratch=folder, durable=False) as file,
    ):
        shutil.copyfileobj(sys.stdin.buffer, cast(BinaryIO, file), 1 << 20)
    return spool
