"""A prefix of an object store as a destination: a conditional write decides which build commits.

See `destination` for the rules. To clean up, a build lists only its own work folder, because other
folders may hold files of builds that are still running.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import xxhash

from pipeline.build.build_plan import PLAN, Plan, comes_of, planned_here
from pipeline.build.destination.card_files import remove_stale_cards
from pipeline.build.destination.local_destination import (
    spool_stdin,
    unfinished_files,
    warn_not_removed,
)
from pipeline.build.destination.missing_file import missing_file
from pipeline.build.generations.files_beside import files_beside
from pipeline.build.options import PreprocessOptions
from pipeline.storage.file_hash import hash_file
from pipeline.storage.folder import Folder
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.object_folder import LostRaceError, ObjectFolder
from pipeline.storage.retries import AT_ONCE
from pipeline.storage.work_names import work_names
from schemas import __version__
from schemas.code_digest import code_digest
from schemas.errors import BuildError, DatasetError, LostCommitError
from schemas.manifest import MANIFEST_NAME, WORK, Manifest


@dataclass(slots=True)
class ObjectDestination:
    """A prefix of an object store; see `Destination` for its methods."""

    out: ObjectFolder
    version_at_start: str | None = None
    _started: bool = False
    _committed: bool = False
    _replaced: frozenset[str] = frozenset()
    """Names of the existing dataset's files."""
    _spooled: str | None = None
    """Name of the object that holds standard input."""
    _build: str = ""
    """Digest in the names of this build's files; "" before the map stage has finished."""
    _works: dict[str, Folder] = field(default_factory=dict)
    """Work folders of this build, by the digest of their plans. A build that compares its inputs
    with the dataset's does so under another plan."""

    def manifest(self) -> bytes | None:
        before = self.out.version_tag(MANIFEST_NAME)
        content = None if before is None else self.out.content(MANIFEST_NAME)
        if content is not None and self.out.version_tag(MANIFEST_NAME) != before:
            return self.manifest()
        if not self._started:
            self.resume(before)
        return content

    def resume(self, version_at_start: str | None) -> None:
        self.version_at_start, self._started = version_at_start, True

    def will_replace(self, manifest: Manifest) -> None:
        names = (entry.name for entry in manifest.files())
        self._replaced = frozenset((*names, *files_beside(manifest, self.out)))

    def will_write(self, build: str) -> None:
        self._build = build

    def discard(self) -> None:
        """Remove the files of this build. A build of the same plan may use them at the same time,
        but it cannot succeed, either. The build kept no record, so it has written no shard."""
        with suppress(BuildError, DatasetError):  # `leftovers` then lists the files
            if unfinished_files(self.out, self._build, self._replaced):
                self.out.sub("records").remove_all(f"{self._build}-")
                self._build = ""
            if self._spooled:
                self.out.remove(self._spooled)
            for folder in self._works.values():
                _remove_all(folder)
            self._works.clear()

    def leftovers(self) -> list[str]:
        return self._unfinished(self._replaced)

    def other_builds(self, planned: Plan, options: PreprocessOptions) -> list[str]:
        own = {*self._works, _work_digest(planned, options)}
        return [
            self.out.where(f"{WORK}/{name}/")
            for name in work_names(self.out.url)
            if re.fullmatch(r"[0-9a-f]{16}", name) and name not in own
        ]

    @contextmanager
    def claim(self, *, shared: bool = False) -> Iterator[None]:
        """Reserve nothing, because a store has no locks. If an error occurs after another build
        has committed, raise an error that names the other build as the cause."""
        try:
            yield
        except (LostRaceError, LostCommitError):
            raise
        except (DatasetError, BuildError) as error:
            # another build of the same plan removes the common work folder when that build ends
            if not self._committed and self.out.version_tag(MANIFEST_NAME) != self.version_at_start:
                raise self._lost() from error
            raise

    def spool(self, options: PreprocessOptions) -> str | None:
        with tempfile.TemporaryDirectory(prefix="thdpack-stdin-") as scratch:
            spooled = spool_stdin(options, Path(scratch))
            if spooled is None:
                return None
            size, digest = hash_file(spooled)
            # the name contains a hash of the content, so that each input has its own object
            self._spooled = f"{WORK}/stdin-{digest}"
            if self.out.size(self._spooled) != size:  # an earlier run may have uploaded it
                self.out.upload(self._spooled, spooled, size)
            return self.out.where(self._spooled)

    def work_folder(self, planned: Plan, options: PreprocessOptions) -> Folder:
        """Return a prefix of `--out`, or a folder in `--scratch`, named after a hash of the plan.

        Raises:
            BuildError: the scratch folder is a link, or it cannot be created.
        """
        digest = _work_digest(planned, options)
        self._works[digest] = self._work_folder(digest, options)
        return self._works[digest]

    def _work_folder(self, digest: str, options: PreprocessOptions) -> Folder:
        if options.scratch is None:
            return self.out.sub(f"{WORK}/{digest}")
        out_digest = xxhash.xxh3_64_hexdigest(self.out.url.encode())
        path = Path(options.scratch) / f"thdpack-{digest}-{out_digest}"
        if path.is_symlink():
            raise BuildError(
                f"{path} is a link, and a build must not remove files behind a link: "
                "remove the link, or choose another --scratch"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BuildError(
                f"cannot write to --scratch {options.scratch}: {error.strerror}"
            ) from error
        return LocalFolder(path, path)

    def commit(self, manifest: Manifest) -> None:
        """Replace the manifest if its version has not changed since the build started.

        Raises:
            BuildError: another build has committed, or has removed a file of this build.
        """
        self.will_write(manifest.build)
        try:
            self.out.replace(MANIFEST_NAME, manifest.to_json().encode(), self.version_at_start)
        except LostRaceError as error:
            raise self._lost() from error
        self._committed = True
        if self.version_at_start is None:
            return
        # The existing dataset may have replaced an earlier one, whose files had the same names as
        # files of this build. The build that replaced it removes such files after its commit.
        problem = missing_file(manifest, self.out)
        if problem is not None:
            raise BuildError(
                f"{problem}: another build removed it meanwhile; "
                "run the same command again with --overwrite"
            )

    def clear(self, manifest: Manifest, work: Folder) -> None:
        """Remove this build's work folders and task list, spooled input, obsolete files and cards.

        Raises:
            BuildError: another build has meanwhile committed a dataset that needs a removed file.
        """
        ours = manifest.to_json().encode()
        obsolete = self._replaced - {entry.name for entry in manifest.files()}
        try:
            if self.out.content(MANIFEST_NAME) != ours:
                # another build replaced the dataset again; the newer dataset may need these files
                obsolete = frozenset()
            else:
                remove_stale_cards(self.out, manifest)
            spooled = [self._spooled] if self._spooled else []
            names = [*sorted(obsolete), *spooled, *self._own_task_list(manifest)]
            with ThreadPoolExecutor(AT_ONCE) as threads:
                list(threads.map(self.out.remove, names))
            for folder in {each.where(): each for each in (*self._works.values(), work)}.values():
                _remove_all(folder)
        except (BuildError, DatasetError) as error:  # the dataset itself is complete
            warn_not_removed(error)
        if obsolete:
            self._check_still_unused(obsolete, ours)

    def _own_task_list(self, manifest: Manifest) -> list[str]:
        """Return [name of the task list] if the dataset was built from that list, else []."""
        waiting = planned_here(self.out)
        return [PLAN] if waiting is not None and comes_of(manifest, waiting) else []

    def _check_still_unused(self, removed: frozenset[str], ours: bytes) -> None:
        """Check that no other build has committed a manifest that names removed files.

        Raises:
            BuildError: another build has committed such a manifest.
        """
        now = self.out.content(MANIFEST_NAME)
        if now is None or now == ours:
            return
        current = Manifest.from_json(now, where=self.out.where(MANIFEST_NAME))
        if removed & {entry.name for entry in current.files()}:
            raise BuildError(
                f"{self.out.where()}: another build committed a dataset that needs files that "
                "this build removed; that dataset is damaged: build it again with --overwrite"
            )

    def _unfinished(self, committed: Iterable[str]) -> list[str]:
        """Return the pattern of this build's shards and records/ files, and its work folder.

        Args:
            committed: names of a committed dataset's files, or the text of its manifest. If they
                match the pattern, the pattern is left out.
        """
        work = [f"{folder.where()}/" for folder in self._works.values()]
        return [*unfinished_files(self.out, self._build, committed), *work]

    def _lost(self) -> LostCommitError:
        """Return the error for a build that cannot commit, because another build has committed.

        The message names the files that this build leaves behind.
        """
        # if the other build has the same plan, its dataset needs the files of this build
        committed = self.out.content(MANIFEST_NAME) or b""
        left = self._unfinished([committed.decode("utf-8", "replace")])
        unused = (
            f". Unused files of this build: {' and '.join(left)}. Remove them, unless the same "
            "command still runs elsewhere. To replace that dataset instead, run the same command "
            "with --overwrite, which uses these files"
        )
        return LostCommitError(
            f"{self.out.where()}: another build committed a dataset here while this build ran; "
            f"that dataset stays, and this build committed nothing{unused if left else ''}"
        )


def _remove_all(work: Folder) -> None:
    """Remove a work folder of this destination."""
    if isinstance(work, LocalFolder):
        shutil.rmtree(work.path, ignore_errors=True)
    else:
        cast(ObjectFolder, work).remove_all()


def _work_digest(planned: Plan, options: PreprocessOptions) -> str:
    """Return 16 hexadecimal digits: a digest of everything that intermediate files depend on."""
    import pyarrow as pa  # slow to import; local destinations do not call this function

    values = {
        "options": options.shape(),
        "variants": options.variants,
        "sources": [[s.name, s.fingerprint, s.format, s.compression] for s in planned.sources],
        "named_files": [[f.option, f.name, f.fingerprint] for f in planned.named_files],
        "ranges": planned.ranges,
        "partitions": planned.partitions,
        "thdpack": __version__,
        "code": code_digest(),
        "pyarrow": pa.__version__,
    }
    return xxhash.xxh3_64_hexdigest(json.dumps(values, sort_keys=True).encode())
