"""A local folder as a destination (see `destination`): a lock makes other builds fail.

The work folder is `.build` in the dataset's folder. After a commit, the build lists the folders and
removes obsolete files. It removes only files with names that builds use.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from pipeline.build.build_plan import PLAN, Plan
from pipeline.build.destination.card_files import remove_stale_cards
from pipeline.build.destination.file_patterns import (
    TEMPORARY_FILE,
    WORK_FILE,
    is_dataset_file,
)
from pipeline.build.destination.local_access import cannot_write, refuse_links
from pipeline.build.destination.lock_holder import holder_of, write_holder
from pipeline.build.generations.files_beside import files_beside
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.progress_file import PROGRESS_NAME
from pipeline.storage.atomic_write import sync_folder, written_atomically
from pipeline.storage.folder import Folder
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.open_input import input_errors
from schemas.errors import BuildError, BusyError
from schemas.manifest import MANIFEST_NAME, WORK, Manifest
from schemas.records import RETIRED
from schemas.shard import SPLITS

_REMOVE_THREADS: Final = 4
_NO_RESULTS: Final = ("lock", "stdin", PROGRESS_NAME)
"""Names of work files that hold no results. `stdin` is a copy of standard input, which a rerun
reads again."""


@dataclass(slots=True)
class LocalDestination:
    """A local folder; see `Destination` for its methods."""

    path: Path
    _cleared: bool = False
    _replaced: frozenset[str] = frozenset()
    """Names of the existing dataset's files."""
    _beside: tuple[str, ...] = ()
    """Names of manifests of earlier generations of the existing dataset, and of its hash index."""
    _had_results: bool = True
    """Whether the work folder held results of an earlier build when this one claimed it."""
    _earlier: frozenset[Path] = frozenset()
    """Shards, files of records/ and retired/, and their folders, from before this build."""
    _build: str = ""
    """Digest in the names of this build's files; "" before the map stage has finished."""

    @property
    def out(self) -> LocalFolder:
        return LocalFolder(self.path, self._work)

    @property
    def _work(self) -> Path:
        return self.path / WORK

    def manifest(self) -> bytes | None:
        return self.out.content(MANIFEST_NAME)

    @property
    def version_at_start(self) -> None:
        """None, because a commit to a local folder does not compare versions of the manifest.
        Instead, a build that replaces the dataset removes older task lists, so that nobody commits
        them."""

    def resume(self, version_at_start: str | None) -> None:
        pass

    @contextmanager
    def claim(self, *, shared: bool = False) -> Iterator[None]:
        lock = self._work / "lock"
        refuse_links(self.path)
        created = [path for path in (self._work, *self._work.parents) if not path.exists()]
        try:
            self._work.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        try:
            self._lock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            if not shared:
                # on a full disk, the build has the lock, but others cannot see who holds it
                with suppress(OSError):
                    write_holder(descriptor)
                self._remove_temporary_files()
                self._had_results = bool(self.leftovers())
                self._earlier = frozenset((*self._dataset_folders(), *self._dataset_files()))
            try:
                yield
            except BaseException:
                if not shared:
                    self._leave_nothing(created)
                raise
            # commands that write no intermediate files, such as `thdpack gc`, leave no folder
            self._cleared = self._cleared or (not shared and not self.leftovers())
            if self._cleared:
                lock.unlink(missing_ok=True)  # before the lock is released
        finally:
            os.close(descriptor)
        if self._cleared:
            # rmdir fails if another build has started; on NFS, it also fails while a removed file
            # is still open
            with suppress(OSError):
                self._work.rmdir()

    def _leave_nothing(self, created: Iterable[Path]) -> None:
        """If the build has no results yet, remove the work folder and the folders that the build
        created, innermost first. Other files and folders stay."""
        with suppress(OSError):
            if self.leftovers():
                return
            for name in _NO_RESULTS:
                (self._work / name).unlink(missing_ok=True)
            for folder in dict.fromkeys((self._work, *created)):
                folder.rmdir()

    def discard(self) -> None:
        if self._had_results:
            return
        with suppress(OSError):  # `leftovers` then lists the files
            for path in {*self._work_files(), *self._dataset_files()} - self._earlier:
                _remove(path)
            for folder in set(self._dataset_folders()) - self._earlier:
                if not any(folder.iterdir()):
                    folder.rmdir()

    def leftovers(self) -> list[str]:
        if not self._work.is_dir() or set(_NO_RESULTS).issuperset(os.listdir(self._work)):
            return []
        return [*unfinished_files(self.out, self._build, self._replaced), f"{self._work}/"]

    def other_builds(self, planned: Plan, options: PreprocessOptions) -> list[str]:
        """Return an empty list: a build in a local folder removes the files of earlier builds."""
        return []

    def _lock(self, descriptor: int, operation: int) -> None:
        """Lock an open lock file.

        Raises:
            BuildError: another build holds the lock, or the file system has no locks.
        """
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
            # this is False if another build has removed the lock file since this build opened it
            locked = os.path.samestat(os.fstat(descriptor), os.stat(self._work / "lock"))
        except (BlockingIOError, FileNotFoundError):
            locked = False
        except OSError as error:
            raise BuildError(
                f"{self.path}: cannot be locked ({error.strerror}); "
                "its file system, or the way it is mounted, must support flock"
            ) from error
        if not locked:
            holder = holder_of(self._work / "lock")
            raise BusyError(
                f"{self.path}: another build is running here{f' ({holder})' if holder else ''}; "
                "wait until it has ended"
            )

    def _remove_temporary_files(self) -> None:
        for path in self._work.glob("*.tmp"):
            if TEMPORARY_FILE.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def spool(self, options: PreprocessOptions) -> str | None:
        spooled = spool_stdin(options, self._work)
        return None if spooled is None else str(spooled)

    def work_folder(self, planned: Plan, options: PreprocessOptions) -> LocalFolder:
        return LocalFolder(self._work, self._work)

    def will_replace(self, manifest: Manifest) -> None:
        self._replaced = frozenset(entry.name for entry in manifest.files())
        self._beside = tuple(files_beside(manifest, self.out))

    def will_write(self, build: str) -> None:
        self._build = build

    def commit(self, manifest: Manifest) -> None:
        # sync the folders first: after a power cut, a manifest must not name lost files
        for folder in sorted({(self.path / entry.name).parent for entry in manifest.files()}):
            sync_folder(folder)
        with self.out.written(MANIFEST_NAME) as file:
            file.write(manifest.to_json().encode())
        sync_folder(self.path)

    def clear(self, manifest: Manifest, work: Folder) -> None:
        """Remove files and cards of earlier datasets, and all work files except the lock file."""
        try:
            # remove the task list first: if the build is killed after this line, a rerun sees that
            # the build was finished
            (self.path / PLAN).unlink(missing_ok=True)
            remove_stale_cards(self.out, manifest)
            beside = [self.path / name for name in self._beside]
            obsolete = [*self._obsolete_files(manifest), *beside, *self._work_files()]
            with ThreadPoolExecutor(_REMOVE_THREADS) as threads:  # removing 1 GB takes 0.1 s
                list(threads.map(_remove, obsolete))
        except OSError as error:
            warn_not_removed(error)
        self._cleared = True

    def _obsolete_files(self, manifest: Manifest) -> list[Path]:
        """Return shards and files of records/ and retired/ that the manifest does not name.

        Return nothing if the dataset has earlier generations, which may need these files. `thdpack
        gc` removes files that no generation needs.
        """
        if manifest.generation > 1:
            return []
        named = {self.path / entry.name for entry in manifest.files()}
        return [path for path in self._dataset_files() if path not in named]

    def _dataset_files(self) -> Iterator[Path]:
        """Yield all shards and files of records/ and retired/."""
        for folder in self._dataset_folders():
            for path in folder.glob("*"):
                if is_dataset_file(folder.name, path.name):
                    yield path

    def _dataset_folders(self) -> list[Path]:
        """Return the existing folders of shards, records/ and retired/."""
        folders = (self.path / name for name in (*SPLITS, "records", RETIRED))
        return [folder for folder in folders if folder.is_dir()]

    def _work_files(self) -> list[Path]:
        return [
            path
            for path in self._work.iterdir()
            if path.name != "lock"
            and (WORK_FILE.fullmatch(path.name) or TEMPORARY_FILE.fullmatch(path.name))
        ]


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def unfinished_files(out: Folder, build: str, committed: Iterable[str]) -> list[str]:
    """Return a list of one pattern, which matches the shards and records/ files of a build.

    The list is empty before the map stage has finished, and if a committed dataset has files that
    match the pattern.

    Args:
        build: digest in the names of the build's files; "" before the map stage has finished.
        committed: names of a committed dataset's files, or the text of its manifest.
    """
    if not build or any(f"/{build}-" in text for text in committed):
        return []
    return [out.where(f"*/{build}-*")]


def warn_not_removed(error: Exception) -> None:
    """Warn that files of a finished build could not be removed."""
    logging.getLogger("thdpack").warning(
        "the dataset is complete, but files of earlier work could not be removed: %s", error
    )


def spool_stdin(options: PreprocessOptions, folder: Path) -> Path | None:
    """Save standard input to a file if it is one of the inputs. Return the file's path, or None.

    The file is needed because a build opens its inputs several times: to detect the format, and in
    every map task. If the dataset already exists, the build also compares the content of its inputs
    with the manifest.
    """
    if "-" not in options.inputs:
        return None
    spool = folder / "stdin"
    with (
        input_errors("standard input"),
        written_atomically(spool, scratch=folder, durable=False) as file,
    ):
        shutil.copyfileobj(sys.stdin.buffer, cast(BinaryIO, file), 1 << 20)
    return spool
