"""Reading inputs from anywhere fsspec reaches, and what their content is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeGuard, cast

import xxhash

from schemas.errors import InputError
from schemas.redact import holds_secret

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from schemas.manifest import RecordsEntry, ShardEntry

SILENCE_SECONDS: Final = 60.0
"""A web server that sends nothing for so long has failed; one that goes on sending may take as long as it likes."""
_BLOCK = 1 << 20
_STORES: Final = frozenset({"aiohttp", "botocore", "aiobotocore", "gcsfs", "google", "azure"})
"""Whose errors are no OSErrors; by name, as none need be installed."""


class HashingReader:
    """A binary stream for reading that hashes what passes through, piece by piece (see `content_hash`).

    piece: bytes of each but the last.
    size: how many bytes are hashed; what comes after them is read and not hashed. None for all there are.
    """

    def __init__(self, file: BinaryIO, *, piece: int, size: int | None) -> None:
        self._file = file
        self._piece = piece
        self._left = size
        self._hash = xxhash.xxh3_128()
        self._room = piece
        self._pieces: list[str] = []
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._add(memoryview(data))
        return data

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = cast(int, self._file.readinto(view))  # type: ignore[attr-defined]
        self._add(view[:count])
        return count

    def _add(self, data: memoryview) -> None:
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        while len(data):
            part = data[: self._room]
            self._hash.update(part)
            self._room -= len(part)
            data = data[len(part) :]
            if self._room == 0:
                self._next()

    def _next(self) -> None:
        self._pieces.append(self._hash.hexdigest())
        self._hash.reset()
        self._room = self._piece

    def finish(self) -> list[str]:
        """Read what is left to hash; the xxh3_128 of every piece."""
        while self._left != 0 and self.read(_BLOCK):
            pass
        if self._room < self._piece:
            self._next()
        return self._pieces

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()
        self.closed = True


def content_hash(pieces: Sequence[str]) -> str:
    """What the manifest calls an input's xxh3_128: its only piece's; of several, that of their digests' bytes end to end. See docs/format.md."""
    return pieces[0] if len(pieces) == 1 else xxhash.xxh3_128_hexdigest(bytes.fromhex("".join(pieces)))


_TAGS: Final = ("ETag", "etag")
_TIMES: Final = ("LastModified", "Last-Modified", "last_modified", "mtime", "created")


def marks_of(info: Mapping[str, Any]) -> str:
    """What a store says of an object that changes when the object does: size and etag, or times where there is none; as fsspec hands it on.

    An etag is enough, and the same in a listing as when it is asked for; times are not: some stores list milliseconds and answer seconds.
    """
    tags = [str(info[key]) for key in _TAGS if info.get(key)][:1]
    return "-".join([str(info.get("size")), *(tags or [str(info[key]) for key in _TIMES if info.get(key)])])


def is_url(path: str) -> bool:
    return "://" in path or path.startswith("simplecache::")


def file_system(url: str) -> tuple[AbstractFileSystem, str]:
    """The fsspec file system of a URL, and the path inside it.

    Raises:
        InputError: no file system is installed for the protocol, or the URL of an object store holds a secret.
    """
    import fsspec

    if "http://" not in url and "https://" not in url and holds_secret(url):
        raise InputError("credentials do not belong into a store's URL: set them in the environment or in its own configuration file", source=url)
    try:
        return cast("tuple[AbstractFileSystem, str]", fsspec.core.url_to_fs(url, **_patience(url)))
    except (ImportError, ValueError) as error:
        protocol = url.partition("://")[0]
        extra = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}.get(protocol)
        remedy = f'pip install "thdpack[{extra}]"' if extra else f"install the fsspec package for {protocol}://"
        raise InputError(f"cannot open {protocol}:// ({error}); {remedy}", source=url) from error


def _patience(url: str) -> dict[str, Any]:
    """Options of a web address's file system, whose requests would fail after five minutes, slow or not."""
    if not url.startswith(("http://", "https://")) or find_spec("aiohttp") is None:
        return {}
    import aiohttp

    return {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=None, sock_connect=SILENCE_SECONDS, sock_read=SILENCE_SECONDS)}}


def protocols(fs: AbstractFileSystem) -> set[str]:
    """The names that a file system goes by."""
    return {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)


@contextmanager
def open_input(url: str, *, at: int = 0, until: int | None = None) -> Iterator[BinaryIO]:
    """Open a local path or URL for reading bytes, from byte `at` on.

    Args:
        until: where the reader will stop, or a little further on; a store is asked for nothing beyond it ahead of the reader.
    Raises:
        InputError: it cannot be opened or read; the message says why.
    """
    with input_errors(url):
        if is_url(url):
            with _opened_url(url, at, until) as remote:
                yield remote
        else:
            with open(url, "rb", buffering=0) as local:
                if at:
                    local.seek(at)  # not of a pipe, such as a list of inputs may be
                yield cast(BinaryIO, local)


def _opened_url(url: str, at: int, until: int | None) -> BinaryIO:
    """An object, in ranges; what a web server has, or a file system of this machine, as fsspec opens it."""
    fs, path = file_system(url)
    if {"s3", "gs", "abfs"} & protocols(fs):
        from pipeline.storage.ranged_file import RangedFile

        return cast(BinaryIO, RangedFile(url, fs, path, at=at, until=until))
    file = cast(BinaryIO, fs.open(path, "rb"))
    file.seek(at)
    return file


@contextmanager
def input_errors(source: str) -> Iterator[None]:
    """Turn what an operating system or a store says while an input is read into an InputError that names it."""
    try:
        yield
    except FileNotFoundError as error:
        if not is_missing(error):
            raise InputError(f"cannot be read: {type(error.__cause__).__name__}: {error.__cause__}", source=source) from error
        raise InputError("no such file", source=source) from error
    except PermissionError as error:
        raise InputError("permission denied", source=source) from error
    except TimeoutError as error:  # what fsspec makes of it has no words
        raise InputError(f"cannot be read: {str(error) or f'nothing came for {SILENCE_SECONDS:g} s'}", source=source) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", source=source) from error
    except Exception as error:
        if not any(kind.__module__.partition(".")[0] in _STORES for kind in type(error).__mro__):
            raise
        raise InputError(f"cannot be read: {type(error).__name__}: {error}", source=source) from error


def is_missing(error: BaseException | None) -> TypeGuard[FileNotFoundError]:
    """Whether a store says that a file is not there; fsspec says so of HTTP, too, when it only could not connect."""
    if not isinstance(error, FileNotFoundError):
        return False
    cause = error.__cause__
    status = getattr(cause, "status", None) or getattr(cause, "status_code", None) or answer_of(error)[0]  # of aiohttp, Azure, AWS
    return cause is None or isinstance(cause, FileNotFoundError) or status in (404, 410)


def answer_of(error: BaseException) -> tuple[int | None, str, str]:
    """The HTTP status, the code and the message of the answer behind an error of s3fs."""
    response = getattr(error.__cause__, "response", None)  # of botocore
    if not isinstance(response, dict):
        return None, "", ""
    said = response.get("Error", {})
    return response.get("ResponseMetadata", {}).get("HTTPStatusCode"), str(said.get("Code", "")), str(said.get("Message", ""))


def hash_file(path: str | Path) -> tuple[int, str]:
    """Bytes and xxh3_128 (hexadecimal) of a local file or URL, read once in small pieces.

    Raises:
        InputError: it cannot be read.
    """
    digest = xxhash.xxh3_128()
    size = 0
    buffer = memoryview(bytearray(_BLOCK))
    with open_input(str(path)) as file:
        while count := cast(int, file.readinto(buffer)):  # type: ignore[attr-defined]
            digest.update(buffer[:count])
            size += count
    return size, digest.hexdigest()


def difference(path: str | Path, found_size: int, found: str, entry: ShardEntry | RecordsEntry) -> str | None:
    """What tells a file's bytes from those the manifest names, or None."""
    if found_size != entry.bytes:
        return f"{path}: {found_size} bytes, the manifest says {entry.bytes}: truncated or replaced"
    if found != entry.xxh3_128:
        return f"{path}: its xxh3_128 is {found}, the manifest says {entry.xxh3_128}: damaged"
    return None
