"""The place where a dataset is built, named by `--out`: a local folder, or a prefix of a store.

Two builds may be started with the same `--out`. The first to commit wins, and the other one fails:

- On a local disk, a lock keeps a second build out, and an atomic rename replaces the manifest.
- On an object store, nothing can be locked. A build's work folder is named after a hash of its
  plan, its shards are named after a hash of the inputs, and the manifest is replaced by a
  conditional write: only if its version is still the one that the build found at its start (or if
  there is still none). Two builds of the same plan write the same bytes under the same names.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from pipeline.build.build_plan import Plan
from pipeline.build.destination.local_destination import LocalDestination
from pipeline.build.destination.object_destination import ObjectDestination
from pipeline.build.options import PreprocessOptions
from pipeline.storage.folder import Folder
from pipeline.storage.object_folder import ObjectFolder
from pipeline.storage.urls import local_path
from schemas.errors import DatasetError
from schemas.manifest import Manifest


class Destination(Protocol):
    """The place of one dataset. Only one build of it at a time can commit."""

    @property
    def out(self) -> Folder:
        """The dataset's folder."""
        ...

    def manifest(self) -> bytes | None:
        """Return the existing manifest, or None.

        The first call starts the build: the commit fails if the manifest has changed by then.
        """
        ...

    @property
    def version_at_start(self) -> str | None:
        """Version of the manifest when the build started.

        None if there was no manifest, or if the commit does not depend on it.
        """
        ...

    def resume(self, version_at_start: str | None) -> None:
        """Resume a build that found this version of the manifest when it started."""
        ...

    def claim(self, *, shared: bool = False) -> AbstractContextManager[None]:
        """Reserve the destination while the context lasts.

        Args:
            shared: share it with other processes that run tasks of the same plan.
        Raises:
            BuildError: another build runs here, or the folder cannot be created.
        """
        ...

    def spool(self, options: PreprocessOptions) -> str | None:
        """Save standard input to a file, if it is an input; return the file's path or URL."""
        ...

    def work_folder(self, planned: Plan, options: PreprocessOptions) -> Folder:
        """Return the folder for a build's spills, rests and task markers."""
        ...

    def commit(self, manifest: Manifest) -> None:
        """Replace the manifest; every file that it names has been written."""
        ...

    def will_replace(self, manifest: Manifest) -> None:
        """Remember the existing dataset.

        After the commit, its files are removed unless the new manifest names them too.
        """
        ...

    def clear(self, manifest: Manifest, work: Folder) -> None:
        """Remove the work folder of a finished build, and files of earlier datasets."""
        ...


def open_destination(url: str) -> LocalDestination | ObjectDestination:
    """Return the destination that `--out` names.

    Raises:
        InputError: no file system is installed for the protocol.
        DatasetError: the name is empty, or it is the name of a file.
    """
    if not url:
        raise DatasetError("the name of the dataset's folder is empty: is a shell variable unset?")
    path = local_path(url)
    if path is None:
        return ObjectDestination(ObjectFolder(url.rstrip("/")))
    if path.exists() and not path.is_dir():
        raise DatasetError(f"{path} is a file, expected the dataset's folder")
    return LocalDestination(path)
