"""Upload files to a dataset repository on the Hugging Face Hub, as one commit.

Large files are uploaded before the commit. The hub keeps them, so an interrupted upload resumes:
the hub needs no bytes of a file that it has. No reader sees a file before the commit, and the
commit makes all files visible together. It fails if another commit was made meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pipeline.storage.hub.address import HubAddress
from pipeline.storage.hub.hub_errors import LOG_IN, explained, has_token, hub_host, status_of
from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.retries import RemoteStore
from schemas.errors import DatasetError, MissingPackageError, OptionError
from schemas.text.phrases import install_command

if TYPE_CHECKING:
    from huggingface_hub import HfApi

Content = bytes | Path
"""Content of a file to upload: its bytes, or the path of a local file."""

_AT_ONCE: Final = 16
"""Number of files that one call uploads. The progress advances after each call."""
_PIECE: Final = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Changes that give a branch the files of a dataset.

    head: commit of the branch
    add: files to upload, by name
    remove: names of files to remove
    """

    head: str
    add: Mapping[str, Content]
    remove: Sequence[str]


class HubRepository:
    """A dataset repository on the hub, with a branch to commit to."""

    def __init__(self, address: HubAddress) -> None:
        """Prepare requests. None is sent.

        Args:
            address: repository, and branch as its revision.
        Raises:
            MissingPackageError: huggingface_hub is not installed.
            DatasetError: the user has no token.
        """
        try:
            from huggingface_hub import HfApi
            from huggingface_hub.utils.tqdm import disable_progress_bars
        except ImportError:
            raise MissingPackageError(
                f"the command needs the extra hf: {install_command('hf')}", source=str(address)
            ) from None
        disable_progress_bars()  # they would be mixed with ours
        self.address = address
        self.branch = address.revision or "main"
        self._api: HfApi = HfApi(endpoint=hub_host())
        self._store = RemoteStore(str(address), INTERRUPTED)
        if not has_token():
            raise DatasetError(f"{address}: there is no token for the hub: {LOG_IN}")

    def create(self, *, private: bool) -> None:
        """Create the repository and the branch if they are missing.

        Raises:
            DatasetError: the hub refuses, or does not answer.
            OptionError: `private` is True, but the repository exists and is public.
        """
        repo = self.address.repo
        self._ask(
            lambda: self._api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
        )
        info = self._ask(lambda: self._api.dataset_info(repo))
        if private and not info.private:
            raise OptionError(
                f"{self.address}: --private is given, but the repository exists and is public: "
                "make it private in its settings, or choose another name"
            )
        if self.branch != "main":
            self._ask(
                lambda: self._api.create_branch(
                    repo, branch=self.branch, repo_type="dataset", exist_ok=True
                )
            )

    def content(self, name: str, head: str) -> bytes | None:
        """Return the content of a small file of a commit; None if the file is missing."""
        from huggingface_hub import HfFileSystem
        from huggingface_hub.errors import EntryNotFoundError

        path = f"datasets/{self.address.repo}@{head}/{name}"

        def read() -> bytes | None:
            try:
                found: bytes = HfFileSystem(endpoint=hub_host()).cat_file(path, block_size=0)
            except (EntryNotFoundError, FileNotFoundError):
                return None
            return found

        return self._ask(read)

    def head(self) -> str:
        """Return the commit of the branch."""
        info = self._ask(lambda: self._api.dataset_info(self.address.repo, revision=self.branch))
        return str(info.sha)

    def difference(
        self, head: str, files: Mapping[str, Content], surplus: Sequence[str]
    ) -> Difference:
        """Compare files with a commit, by size and hash.

        Args:
            files: all files of the dataset, by name.
            surplus: names of files that the branch must not keep.
        """
        found = self._ask(
            lambda: {
                entry.path: entry
                for entry in self._api.list_repo_tree(
                    self.address.repo, recursive=True, revision=head, repo_type="dataset"
                )
                if hasattr(entry, "blob_id")
            }
        )
        add = {
            name: content
            for name, content in files.items()
            if name not in found or not _is_same(content, found[name])
        }
        remove = [name for name in surplus if name in found and name not in files]
        return Difference(head=head, add=add, remove=remove)

    def commit(self, difference: Difference, message: str, on_bytes: Callable[[int], None]) -> str:
        """Upload the files of a difference, commit them, and return the commit.

        Args:
            on_bytes: called with the number of bytes of each group of files that was uploaded.
        Raises:
            DatasetError: the hub refuses, does not answer, or has a newer commit.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        place: dict[str, Any] = {
            "repo_id": self.address.repo,
            "repo_type": "dataset",
            "revision": self.branch,
        }
        adds = [
            CommitOperationAdd(name, str(content) if isinstance(content, Path) else content)
            for name, content in difference.add.items()
        ]
        for first in range(0, len(adds), _AT_ONCE):
            group = adds[first : first + _AT_ONCE]
            self._ask(
                lambda group=group: self._api.preupload_lfs_files(  # type: ignore[misc]  # mypy cannot infer a default argument
                    additions=group, free_memory=False, **place
                )
            )
            on_bytes(sum(each.upload_info.size for each in group))
        removals = [CommitOperationDelete(name) for name in difference.remove]

        def send() -> str:
            done = self._api.create_commit(
                operations=[*adds, *removals],
                commit_message=message,
                parent_commit=difference.head,
                **place,
            )
            return str(done.oid)

        try:
            answer = self._answer(send)
        except Exception as error:
            # never repeated: the hub may have made the commit, although its answer was lost
            raise DatasetError(
                f"{self.address}: the commit was not confirmed: {type(error).__name__}: {error}; "
                "run the same command to resume"
            ) from error
        if isinstance(answer, DatasetError):
            raise answer
        return answer

    def _ask(self, request: Callable[[], T]) -> T:
        """Send a request, with retries.

        Raises:
            DatasetError: the hub refuses, or does not answer.
        """
        answer = self._store.with_retries(
            "request", lambda: self._answer(request), doing="answered by"
        )
        if isinstance(answer, DatasetError):
            raise answer
        return answer

    def _answer(self, request: Callable[[], T]) -> T | DatasetError:
        """Send a request once. Return the answer, or the error if a retry is useless."""
        try:
            return request()
        except Exception as error:
            fault = self._fault(error)
            if fault is None:
                raise
            return fault

    def _fault(self, error: Exception) -> DatasetError | None:
        """Return an error with a remedy; None if the fault may be temporary."""
        if status_of(error) is None and isinstance(error.__cause__, Exception):
            error = error.__cause__  # huggingface_hub wraps errors of uploads
        if status_of(error) == 412:
            said: str | None = (
                "another commit was made on the branch during the upload: run the same command "
                "again"
            )
        else:
            said = explained(error, self.branch)
        return None if said is None else DatasetError(f"{self.address}: {said}")


def size_of(content: Content) -> int:
    """Return the size of a file to upload, in bytes."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


def _is_same(content: Content, entry: Any) -> bool:
    """Return whether the hub's file has the same content, by its size and hash.

    The hub gives the sha256 of large files. Of small ones, it gives git's hash of a blob.

    Args:
        entry: RepoFile of huggingface_hub.
    """
    size = size_of(content)
    if entry.size != size:
        return False
    if entry.lfs is not None:
        return bool(entry.lfs.sha256 == _hashed(content, hashlib.sha256()))
    blob = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    return bool(entry.blob_id == _hashed(content, blob))


def _hashed(content: Content, digest: Any) -> str:
    if isinstance(content, bytes):
        digest.update(content)
    else:
        with content.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    return str(digest.hexdigest())
