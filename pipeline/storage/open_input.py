"""Open an input for reading, and raise its store's errors as InputErrors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, cast

from pipeline.storage.ranged_file import RangedFile
from pipeline.storage.urls import SILENCE_SECONDS, file_system, is_missing, is_url, protocols
from schemas.errors import InputError

_STORES: Final = frozenset({"aiohttp", "botocore", "aiobotocore", "gcsfs", "google", "azure"})
"""Libraries whose errors are not OSErrors. They are named as text, because they may not be
installed."""


@contextmanager
def open_input(url: str, *, at: int = 0, until: int | None = None) -> Iterator[BinaryIO]:
    """Open a local path or URL for reading bytes, starting at byte `at`.

    Args:
        until: approximate byte at which the reader will stop; nothing beyond it is prefetched.
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
                    local.seek(at)  # a list of inputs may be a pipe, which cannot seek
                yield cast(BinaryIO, local)


def _opened_url(url: str, at: int, until: int | None) -> BinaryIO:
    """Open an object in ranges, and files of web servers and other file systems through fsspec."""
    fs, path = file_system(url)
    if {"s3", "gs", "abfs"} & protocols(fs):
        return cast(BinaryIO, RangedFile(url, fs, path, at=at, until=until))
    file = cast(BinaryIO, fs.open(path, "rb"))
    file.seek(at)
    return file


@contextmanager
def input_errors(source: str) -> Iterator[None]:
    """Raise the errors of an operating system or a store as an InputError that names the input."""
    try:
        yield
    except FileNotFoundError as error:
        if not is_missing(error):
            raise InputError(
                f"cannot be read: {type(error.__cause__).__name__}: {error.__cause__}",
                source=source,
            ) from error
        raise InputError("no such file", source=source) from error
    except PermissionError as error:
        raise InputError("permission denied", source=source) from error
    except TimeoutError as error:  # fsspec's own TimeoutError has no message
        raise InputError(
            f"cannot be read: {str(error) or f'nothing arrived for {SILENCE_SECONDS:g} s'}",
            source=source,
        ) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", source=source) from error
    except Exception as error:
        if not any(kind.__module__.partition(".")[0] in _STORES for kind in type(error).__mro__):
            raise
        raise InputError(
            f"cannot be read: {type(error).__name__}: {error}", source=source
        ) from error
