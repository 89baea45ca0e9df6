"""A prefix of an object store as a folder.

A file is first written to a local temporary file, hashed, and then uploaded as a whole. An upload
creates a complete object or no object. Large objects are uploaded in parts, which the store joins
at the end. Failed requests are retried (see pipeline.storage.retries). Temporary files are in
TMPDIR; each is about as large as a shard.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar, cast

from pipeline.storage.atomic_write import Finisher, HashingWriter, WholeWrites, finish_by
from pipeline.storage.folder import Part
from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.ranged_file import RANGE
from pipeline.storage.retries import AT_ONCE, RemoteStore, call_with_deadline
from pipeline.storage.s3.faults import answer_of
from pipeline.storage.urls import (
    forget_listings,
    is_missing,
    protocols,
    range_options,
    version_tag_of,
    whole_file_options,
)
from schemas.errors import BuildError, DatasetError, SettingError

if TYPE_CHECKING:
    import pyarrow as pa  # only for types, as in pipeline.storage.folder
    from fsspec import AbstractFileSystem

UPLOAD_PART: Final = 16 << 20
"""Size in bytes of an upload's parts. Objects of at least twice this size are uploaded in parts,
several parts in parallel."""
_MOST_PARTS: Final = 10_000
"""Maximum number of parts of an object on S3."""
_RANGES_AHEAD: Final = 2
"""Number of ranges of one object that are fetched in parallel."""

T = TypeVar("T")


class LostRaceError(BuildError):
    """Another writer wrote the object first."""


_just_written: dict[str, str] = {}
"""Version tags that the store returned for this process's uploads, by URL. A tag is removed
when it is read."""


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    """A prefix of an object store. See `Folder`.

    url: URL of the prefix, without a slash at its end
    """

    url: str

    @property
    def local(self) -> bool:
        return False

    def where(self, name: str = "") -> str:
        return f"{self.url}/{name}" if name else self.url

    def sub(self, name: str) -> ObjectFolder:
        return ObjectFolder(self.where(name))

    @contextmanager
    def written(
        self,
        name: str,
        *,
        durable: bool = True,
        write_back: bool = False,
        finisher: Finisher | None = None,
    ) -> Iterator[HashingWriter]:
        with self._spool_errors(name):
            # fsspec derives the object's content type, such as text/html, from the file's suffix
            suffix = PurePosixPath(name).suffix
            file = tempfile.NamedTemporaryFile(prefix="thdpack-", suffix=suffix, buffering=0)  # noqa: SIM115 (`finish` closes the file)
            writer = HashingWriter(cast(BinaryIO, WholeWrites(file)))
            try:
                yield writer
            except BaseException:
                file.close()
                raise

        def finish() -> None:
            with self._spool_errors(name), file:
                self.upload(name, Path(file.name), writer.bytes)

        finish_by(finisher, finish)

    @contextmanager
    def _spool_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, InterruptedError):
                raise
            folder = tempfile.gettempdir()
            raise BuildError(
                f"cannot write {self.where(name)}: {error.strerror or error}; "
                f"make room in {folder}, or set TMPDIR to a folder with more room"
            ) from error

    def sync(self, names: Sequence[str]) -> None:
        """Do nothing: an uploaded object is durable."""

    def upload(self, name: str, file: Path, size: int) -> None:
        """Upload a file. The object appears only when the upload is complete.

        Raises:
            BuildError: all attempts failed.
        """
        fs, path = self._reached(name)
        options = {"chunksize": part_bytes(size)} if {"s3", "gs"} & protocols(fs) else {}

        def put() -> None:
            try:
                call_with_deadline(lambda: fs.put_file(str(file), path, **options), size)
            except FileNotFoundError as error:
                if answer_of(error)[1] != "NoSuchUpload":
                    raise
                # perhaps the upload is complete, and only the store's answer was lost
                raise ConnectionError("the store no longer knows the upload") from error
            fs.invalidate_cache()
            found = fs.info(path)
            if int(found["size"]) != size:
                raise ConnectionError(f"{found['size']} of {size} bytes arrived")
            _just_written[self.where(name)] = version_tag_of(found)

        self._writing(name, put)

    def content(self, name: str) -> bytes | None:
        fs, path = self._reached(name)
        try:
            found: bytes = self._reading(
                name,
                lambda: call_with_deadline(lambda: fs.cat_file(path, **whole_file_options(fs)), 0),
            )
        except DatasetError as error:
            if is_missing(error.__cause__):
                return None
            raise
        return found

    def parts(self, wanted: Sequence[Part]) -> list[pa.Buffer]:
        with ThreadPoolExecutor(min(AT_ONCE, max(len(wanted), 1))) as threads:
            return list(threads.map(self._part, wanted))

    def _part(self, part: Part) -> pa.Buffer:
        import pyarrow as pa

        if part.end == part.begin:
            return pa.py_buffer(b"")
        fs, path = self._reached(part.name)
        size = 0 if part.end is None else part.end - part.begin

        def get() -> bytes:
            data: bytes = call_with_deadline(
                lambda: (
                    fs.cat_file(path, **whole_file_options(fs))
                    if part.end is None
                    else fs.cat_file(path, start=part.begin, end=part.end, **range_options(fs))
                ),
                size,
            )
            if part.end is not None and len(data) != size:
                raise ConnectionError(f"{len(data)} of {size} bytes arrived")
            return data

        return pa.py_buffer(self._reading(part.name, get))

    def buffer(self, name: str) -> pa.Buffer:
        import pyarrow as pa

        size = self.size(name)
        if size is None:
            raise FileNotFoundError(self.where(name))
        content = pa.allocate_buffer(size)
        parts = [Part(name, begin, min(begin + RANGE, size)) for begin in range(0, size, RANGE)]
        with ThreadPoolExecutor(_RANGES_AHEAD) as threads:
            for part, piece in zip(parts, threads.map(self._part, parts), strict=True):
                memoryview(content)[part.begin : part.end] = piece
        return content

    def size(self, name: str) -> int | None:
        found = self._info(name)
        return None if found is None else int(found["size"])

    def version_tag(self, name: str) -> str | None:
        found = self._info(name)
        return None if found is None else version_tag_of(found)

    def written_version_tag(self, name: str) -> str | None:
        return _just_written.pop(self.where(name), None) or self.version_tag(name)

    def _info(self, name: str) -> dict[str, Any] | None:
        fs, path = self._reached(name)
        forget_listings(fs, self.url)
        try:
            found: dict[str, Any] = self._reading(
                name, lambda: call_with_deadline(lambda: fs.info(path), 0)
            )
            return found
        except DatasetError as error:
            if is_missing(error.__cause__):
                return None
            raise

    def holds(self, name: str, size: int, xxh3_128: str, version_tag: str | None) -> bool:
        """Compare only the version tags, because a changed object has another tag."""
        return version_tag is not None and self.version_tag(name) == version_tag

    def remove(self, name: str) -> None:
        fs, path = self._reached(name)

        def remove() -> None:
            try:
                call_with_deadline(lambda: fs.rm_file(path), 0)
            except FileNotFoundError as error:
                if not is_missing(error):
                    raise

        self._writing(name, remove)

    def remove_all(self, beginning: str = "") -> None:
        """List the objects under the prefix, and remove those whose names begin so."""
        fs, path = self._reached("")

        def find() -> list[str]:
            fs.invalidate_cache()
            found: list[str] = call_with_deadline(lambda: fs.find(path), 0)
            return found

        root = path.rstrip("/") + "/"
        names = [name.removeprefix(root) for name in self._writing("", find)]
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(self.remove, [n for n in names if n.startswith(beginning)]))

    def replace(self, name: str, content: bytes, version_tag: str | None) -> None:
        """Replace a small object if it still has the expected version.

        The write is conditional if the store supports conditional writes.

        Args:
            version_tag: tag of the expected version; None if no object is expected.
        Raises:
            LostRaceError: the object has another version.
            BuildError: the object cannot be written.
        """
        from pipeline.storage.conditional_put import put_if

        fs, path = self._reached(name)
        won = self._writing(
            name,
            lambda: call_with_deadline(
                lambda: put_if(fs, path, content, version_tag), len(content)
            ),
        )
        # If the object has this content already, there is no error. Either an earlier attempt
        # succeeded, but its answer was lost, or a build of the same plan wrote the object.
        if not won and self.content(name) != content:
            raise LostRaceError(f"{self.where(name)}: another build has replaced this file")

    def _reached(self, name: str) -> tuple[AbstractFileSystem, str]:
        from pipeline.storage.urls import file_system

        return file_system(self.where(name))

    def _reading(self, name: str, read: Callable[[], T]) -> T:
        return RemoteStore(self.url, INTERRUPTED).with_retries(name or self.url, read)

    def _writing(self, name: str, write: Callable[[], T]) -> T:
        try:
            return RemoteStore(self.url, INTERRUPTED).with_retries(
                name or self.url, write, doing="written to"
            )
        except SettingError:
            raise
        except DatasetError as error:
            raise BuildError(f"{error}; run the same command to resume") from error


def part_bytes(size: int) -> int:
    """Return the part size for the upload of an object of `size` bytes."""
    return UPLOAD_PART * max(1, -(-size // (UPLOAD_PART * _MOST_PARTS)))
