"""The destination of a build, named by `--out`: a local folder, or a prefix of an object store.

If a user starts two builds with the same `--out`, at most one of them commits:

- On a local disk, a lock makes the second build fail at its start. An atomic rename replaces the
  manifest.
- An object store has no locks. The name of a build's work folder contains a hash of the plan. The
  names of shards contain a hash of the inputs, the options and the version of thdpack. Therefore
  two different builds write different files. A conditional write replaces the manifest. This write
  fails if the manifest has changed since the build started. Two builds of the same plan write the
  same bytes under the same names.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from pipeline.build.build_plan import Plan
from pipeline.build.destination.local_destination import LocalDestination
from pipeline.build.destination.object_destination import ObjectDestination
from pipeline.build.options import PreprocessOptions
from pipeline.storage.folder import Folder
from pipeline.storage.hub.address import is_hub
from pipeline.storage.object_folder import ObjectFolder
from pipeline.storage.urls import local_path
from schemas.errors import OptionError
from schemas.manifest import Manifest


class Destination(Protocol):
    """Destination of one dataset. If several builds run at the same time, only one can commit."""

    @property
    def out(self) -> Folder:
        """The dataset's folder."""
        ...

    def manifest(self) -> bytes | None:
        """Return the content of the existing manifest, or None.

        On an object store, the commit fails if the manifest has changed since the first call of
        this method.
        """
        ...

    @property
    def version_at_start(self) -> str | None:
        """Version of the manifest when the build started.

        None if there was no manifest, or if the commit does not depend on the version.
        """
        ...

    def resume(self, version_at_start: str | None) -> None:
        """Resume a build that found this version of the manifest when it started."""
        ...

    def claim(self, *, shared: bool = False) -> AbstractContextManager[None]:
        """Reserve the destination while the context lasts.

        Args:
            shared: True if other processes that run tasks of the same plan may claim the
                destination at the same time.
        Raises:
            BuildError: another build runs here, or the folder cannot be created.
        """
        ...

    def spool(self, options: PreprocessOptions) -> str | None:
        """Save standard input to a file if it is one of the inputs; return the file's path or URL.

        Return None if standard input is not one of the inputs.
        """
        ...

    def work_folder(self, planned: Plan, options: PreprocessOptions) -> Folder:
        """Return the folder for a build's intermediate files and the markers of finished tasks."""
        ...

    def discard(self) -> None:
        """Remove the files and folders that this build has created, because it cannot succeed.

        In a local folder, nothing is removed if the build has resumed an earlier one, whose options
        may have been others.
        """
        ...

    def leftovers(self) -> list[str]:
        """Return the folders and file patterns that this build leaves behind if it stops now."""
        ...

    def other_builds(self, planned: Plan, options: PreprocessOptions) -> list[str]:
        """Return the work folders of other builds that are still running or were abandoned.

        Folders that `work_folder` has returned belong to this build.
        """
        ...

    def commit(self, manifest: Manifest) -> None:
        """Replace the manifest. All files that the new manifest names must already be written."""
        ...

    def will_replace(self, manifest: Manifest) -> None:
        """Remember the existing dataset.

        After the commit, files of that dataset are removed if the new manifest does not name them.
        """
        ...

    def will_write(self, build: str) -> None:
        """Remember `build`, the digest at the beginning of the names of new shards and records/
        files."""
        ...

    def clear(self, manifest: Manifest, work: Folder) -> None:
        """Remove the work folders of a finished build, and files and cards of earlier datasets.

        A card is a file of `thdpack card`. The cards of the committed dataset stay.
        """
        ...


def open_destination(url: str) -> LocalDestination | ObjectDestination:
    """Return the destination that `--out` names.

    Raises:
        InputError: no file system is installed for the protocol of the URL.
        OptionError: the name is empty, a web address, or the name of a file.
    """
    if not url:
        raise OptionError("the name of the dataset's folder is empty: is a shell variable unset?")
    if url.startswith(("http://", "https://")):
        raise OptionError(
            f"{url}: cannot be written to; use a folder, s3:// or gs://. For an S3-compatible "
            "store, set AWS_ENDPOINT_URL to its address, and use s3://BUCKET/PREFIX"
        )
    if is_hub(url):
        raise OptionError(
            f"{url}: cannot be written to; use a folder, s3:// or gs://. To publish a finished "
            "dataset on the Hugging Face Hub, use `thdpack push`"
        )
    path = local_path(url)
    if path is None:
        return ObjectDestination(ObjectFolder(url.rstrip("/")))
    if path.exists() and not path.is_dir():
        raise OptionError(f"{path} is a file, expected the dataset's folder")
    return LocalDestination(path)
