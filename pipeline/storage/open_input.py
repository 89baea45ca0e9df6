"""Open an input for reading, and turn its store's errors into InputErrors."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Final, cast

from pipeline.storage.ranged_file import RangedFile
from pipeline.storage.s3.faults import refused_access, refused_without_keys
from pipeline.storage.urls import SILENCE_SECONDS, file_system, is_missing, is_url, protocols
from schemas.errors import InputError, MissingInputError, SettingError
from schemas.manifest import WORK

_STORES: Final = frozenset({"aiohttp", "botocore", "aiobotocore", "gcsfs", "google", "azure"})
"""Names of libraries whose errors are not OSErrors. Errors are recognized by these names, because
the libraries may not be installed."""


@contextmanager
def open_input(url: str, *, at: int = 0, until: int | None = None) -> Iterator[BinaryIO]:
    """Open a local path or URL for reading bytes, starting at byte `at`.

    Args:
        until: approximate byte at which the caller stops reading. Later bytes are not prefetched.
    Raises:
        MissingInputError: the input does not exist.
        InputError: the input cannot be opened or read. The message names the reason.
    """
    with input_errors(url):
        if is_url(url):
            with _opened_url(url, at, until) as remote:
                yield remote
        else:
            with open(url, "rb", buffering=0) as local:
                if at:
                    local.seek(at)  # only if necessary: the input may be a pipe, which cannot seek
                yield cast(BinaryIO, local)


def _opened_url(url: str, at: int, until: int | None) -> BinaryIO:
    """Open an object of a store as a RangedFile, and other URLs as files of fsspec."""
    fs, path = file_system(url)
    if {"s3", "gs", "abfs"} & protocols(fs):
        return cast(BinaryIO, RangedFile(url, fs, path, at=at, until=until))
    file = cast(BinaryIO, fs.open(path, "rb"))
    file.seek(at)
    return file


@contextmanager
def input_errors(source: str) -> Iterator[None]:
    """Turn errors of the operating system or a store into an InputError that names the input.

    Raises:
        InputError: see above; a MissingInputError if the input is missing.
        SettingError: requests have no credentials, and S3 forbids the request.
    """
    try:
        yield
    except FileNotFoundError as error:
        if not is_missing(error):
            raise InputError(
                f"cannot be read: {type(error.__cause__).__name__}: {error.__cause__}",
                source=source,
            ) from error
        raise MissingInputError(
            f"no such file{' or folder' * source.endswith('/')}{_similar(source)}", source=source
        ) from error
    except PermissionError as error:
        if (refused := refused_without_keys(error, source)) is not None:
            raise SettingError(f"{source}: {refused}") from error
        reason = refused_access(error, source) if is_url(source) else "permission denied"
        raise InputError(reason, source=source) from error
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


def _similar(path: str) -> str:
    """Return a hint about a missing file, or "" if there is no hint.

    The hint is one of these:
    - inputs must not be joined by commas
    - a file of a similar name in the same folder
    - the current folder, if the path is relative
    """
    if is_url(path):
        return ""
    parts = [part.strip() for part in path.split(",")]
    if len(parts) > 1 and any(part and os.path.exists(part) for part in parts):
        return "; separate inputs by spaces, not by commas"
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        names = []
    for close in similar_names(name, names):
        found = os.path.join(folder, close)
        if not os.path.isdir(os.path.join(found, WORK)):  # else a build is running there
            return f"; did you mean {found}?"
    return "" if os.path.isabs(path) else f"; the current folder is {os.getcwd()}"


def similar_names(name: str, names: Sequence[str]) -> list[str]:
    """Return the names that a user may have meant, the most likely name first: those that add an
    extension, then those that differ in few letters."""
    longer = sorted(other for other in names if other.startswith(f"{name}."))
    return [*longer, *difflib.get_close_matches(name, names, cutoff=0.8)]
