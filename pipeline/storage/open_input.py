"""Open an input for reading, and turn what its store raises into an InputError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, cast

from pipeline.storage.ranged_file import RangedFile
from pipeline.storage.urls import SILENCE_SECONDS, file_system, is_missing, is_url, protocols
from schemas.errors import InputError

_STORES: Final = frozenset({"aiohttp", "botocore", "aiobotocore", "gcsfs", "google", "azure"})
"""Whose errors are no OSErrors; by name, as none need be installed."""


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
            raise InputError(
                f"cannot be read: {type(error.__cause__).__name__}: {error.__cause__}",
                source=source,
            ) from error
        raise InputError("no such file", source=source) from error
    except PermissionError as error:
        raise InputError("permission denied", source=source) from error
    except TimeoutError as error:  # what fsspec makes of it has no words
        raise InputError(
            f"cannot be read: {str(error) or f'nothing came for {SILENCE_SECONDS:g} s'}",
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
