"""Where a dataset is built: its folder, the folder of work in progress, and what makes one of two writers win.

On a local disk a lock keeps a second build away, and the manifest is replaced by rename. On an object store nothing can be
locked: a build's work lies under a name of its own, made from its plan, its shards are named after their content's origin, and the
manifest is written only if it is still the one (or the absence of one) that the build found at its start. Two builds of the same
plan write the same bytes under the same names; of any two, the second to commit is told so.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import xxhash

from pipeline.build.build_plan import PLAN, Plan, comes_of, planned_here
from pipeline.build.destination.local_destination import (
    WORK,
    LocalDestination,
    spool_stdin,
    warn_not_removed,
)
from pipeline.build.options import PreprocessOptions
from pipeline.storage.file_hash import hash_file
from pipeline.storage.folder import Folder
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.object_folder import LostRaceError, ObjectFolder
from pipeline.storage.retries import AT_ONCE
from pipeline.storage.urls import local_path
from schemas import __version__
from schemas.code_digest import code_digest
from schemas.errors import BuildError, DatasetError
from schemas.manifest import MANIFEST_NAME, Manifest
from schemas.manifest_entries import RecordsEntry, ShardEntry


class Destination(Protocol):
    """A place for one dataset, and one build of it at a time."""

    @property
    def out(self) -> Folder:
        """The dataset."""
        ...

    def manifest(self) -> bytes | None:
        """The manifest that is there. When it is first asked for, the build begins: the commit fails if it is another by then."""
        ...

    @property
    def version_at_start(self) -> str | None:
        """What tells the manifest that was there when the build began, if that matters."""
        ...

    def resume(self, version_at_start: str | None) -> None:
        """Go on with a build that began when `mark` was this."""
        ...

    def claim(self, *, shared: bool = False) -> AbstractContextManager[None]:
        """Hold the place for as long as the context lasts, alone or with others that run tasks of the same plan.

        Raises:
            BuildError: another build has it, or it cannot be made.
        """
        ...

    def spool(self, options: PreprocessOptions) -> str | None:
        """Standard input as a file, if it is one of the inputs; its path or URL."""
        ...

    def work_folder(self, planned: Plan, options: PreprocessOptions) -> Folder:
        """The folder for the work in progress of a build."""
        ...

    def commit(self, manifest: Manifest) -> None:
        """Replace the manifest; everything it names is there."""
        ...

    def will_replace(self, manifest: Manifest) -> None:
        """Note the dataset that is there: its files go after the commit, unless the new one names them too."""
        ...

    def clear(self, manifest: Manifest, work: Folder) -> None:
        """Remove the work of a finished build and what earlier generations left."""
        ...


def open_destination(url: str) -> LocalDestination | ObjectDestination:
    """The place that `--out` names.

    Raises:
        InputError: no file system is installed for the protocol.
        DatasetError: it is a file, or nothing is named.
    """
    if not url:
        raise DatasetError("an empty name for the dataset's folder: is a variable unset?")
    path = local_path(url)
    if path is None:
        return ObjectDestination(ObjectFolder(url.rstrip("/")))
    if path.exists() and not path.is_dir():
        raise DatasetError(f"{path}: is a file, --out names a folder")
    return LocalDestination(path)


@dataclass(slots=True)
class ObjectDestination:
    """A prefix of an object store."""

    out: ObjectFolder
    version_at_start: str | None = None
    _begun: bool = False
    _committed: bool = False
    _replaced: tuple[ShardEntry | RecordsEntry, ...] = ()
    _spooled: str | None = None

    def manifest(self) -> bytes | None:
        before = self.out.mark(MANIFEST_NAME)
        content = None if before is None else self.out.content(MANIFEST_NAME)
        if content is not None and self.out.mark(MANIFEST_NAME) != before:
            return self.manifest()
        if not self._begun:
            self.resume(before)
        return content

    def resume(self, version_at_start: str | None) -> None:
        self.version_at_start, self._begun = version_at_start, True

    def will_replace(self, manifest: Manifest) -> None:
        self._replaced = manifest.files()

    @contextmanager
    def claim(self, *, shared: bool = False) -> Iterator[None]:
        try:
            yield
        except LostRaceError:
            raise
        except (DatasetError, BuildError) as error:
            if (
                not self._committed and self.out.mark(MANIFEST_NAME) != self.version_at_start
            ):  # the other build took our common work away when it was done
                raise _lost(self.out) from error
            raise

    def spool(self, options: PreprocessOptions) -> str | None:
        with tempfile.TemporaryDirectory(prefix="thdpack-stdin-") as scratch:
            spooled = spool_stdin(options, Path(scratch))
            if spooled is None:
                return None
            size, digest = hash_file(spooled)
            self._spooled = f"{WORK}/stdin-{digest}"  # two builds with other inputs do not share it
            if self.out.size(self._spooled) != size:  # an earlier run may have got so far
                self.out.upload(self._spooled, spooled, size)
            return self.out.where(self._spooled)

    def work_folder(self, planned: Plan, options: PreprocessOptions) -> Folder:
        import pyarrow as pa

        sources = [[s.name, s.fingerprint, s.format, s.compression] for s in planned.sources]
        plan = {
            "options": options.shape(),
            "sources": sources,
            "ranges": planned.ranges,
            "partitions": planned.partitions,
        }
        versions = {"thdpack": __version__, "code": code_digest(), "pyarrow": pa.__version__}
        digest = xxhash.xxh3_64_hexdigest(json.dumps({**plan, **versions}, sort_keys=True).encode())
        if options.scratch is None:
            return self.out.sub(f"{WORK}/{digest}")
        path = (
            Path(options.scratch)
            / f"thdpack-{digest}-{xxhash.xxh3_64_hexdigest(self.out.url.encode())}"
        )
        if path.is_symlink():
            raise BuildError(
                f"{path} is a link; a build removes its work from folders of its own only: remove the link, or choose another --scratch"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BuildError(
                f"cannot write to --scratch {options.scratch}: {error.strerror}"
            ) from error
        return LocalFolder(path, path)

    def commit(self, manifest: Manifest) -> None:
        try:
            self.out.replace(MANIFEST_NAME, manifest.to_json().encode(), self.version_at_start)
        except LostRaceError as error:
            raise _lost(self.out, manifest) from error
        self._committed = True
        gone = None if self.version_at_start is None else missing_file(manifest, self.out)
        if (
            gone is not None
        ):  # a build that replaced an earlier dataset of the same names was still removing that one's files
            raise BuildError(
                f"{gone}; another build removed it meanwhile: run the same command again, with --overwrite"
            )

    def _plan_of(self, manifest: Manifest) -> list[str]:
        """The task list, if it was this dataset's: another's is worked off by others."""
        there = planned_here(self.out)
        return [PLAN] if there is not None and comes_of(manifest, there) else []

    def clear(self, manifest: Manifest, work: Folder) -> None:
        """Nothing is listed but our own work: what another build is writing at this moment must stay.

        Raises:
            BuildError: another build committed meanwhile, of files that were being removed here.
        """
        ours = manifest.to_json().encode()
        replaced = {entry.name for entry in self._replaced} - {
            entry.name for entry in manifest.files()
        }
        try:
            if (
                self.out.content(MANIFEST_NAME) != ours
            ):  # replaced again: what was removed for our sake may be the new one's
                replaced = set()
            with ThreadPoolExecutor(AT_ONCE) as threads:
                list(
                    threads.map(
                        self.out.remove,
                        [
                            *sorted(replaced),
                            *([self._spooled] if self._spooled else []),
                            *self._plan_of(manifest),
                        ],
                    )
                )
            if isinstance(work, LocalFolder):
                shutil.rmtree(work.path, ignore_errors=True)
            else:
                cast(ObjectFolder, work).remove_all()
        except (BuildError, DatasetError) as error:  # the dataset is there, and whole
            warn_not_removed(error)
        now = self.out.content(MANIFEST_NAME) if replaced else ours
        if (
            now is not None
            and now != ours
            and replaced
            & {
                entry.name
                for entry in Manifest.from_json(now, where=self.out.where(MANIFEST_NAME)).files()
            }
        ):
            where = self.out.where()
            raise BuildError(
                f"{where}: another build committed files here that this one was removing; that dataset is damaged: build it again with --overwrite"
            )


def missing_file(manifest: Manifest, out: Folder) -> str | None:
    """A file that the manifest names and that is not there in its size."""
    with ThreadPoolExecutor(AT_ONCE) as threads:  # a store takes its time over each
        sizes = threads.map(out.size, (entry.name for entry in manifest.files()))
        for entry, size in zip(manifest.files(), sizes, strict=True):
            if size != entry.bytes:
                return f"{out.where(entry.name)}: missing or of another size"
    return None


def _lost(out: ObjectFolder, manifest: Manifest | None = None) -> BuildError:
    ours = f"; what this one wrote (*/{manifest.build}-*) is part of no dataset" if manifest else ""
    return BuildError(
        f"{out.where()}: another build committed a dataset here while this one ran; that one stays, nothing of this one is in it{ours}"
    )
