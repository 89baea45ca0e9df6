"""Read the manifest of a dataset from disk or from a store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from pipeline.storage.retries import RemoteStore
from pipeline.storage.s3.first_contact import refuse_unreachable
from pipeline.storage.urls import is_missing, local_path
from pipeline.storage.work_names import work_names
from schemas.errors import DatasetError, ManifestError
from schemas.manifest import MANIFEST_NAME, Manifest
from schemas.untrusted_json import MOST_BYTES


def read_manifest(url: str | Path, *, stopped: threading.Event | None = None) -> Manifest:
    """Return the manifest of a dataset, local or remote.

    Raises:
        ManifestError: the manifest is missing or damaged, or has another version.
        DatasetError: the store cannot be reached.
        InputError: no file system is installed for the protocol, or the endpoint is invalid.
    """
    folder = local_path(str(url))
    if folder is None:
        refuse_unreachable(str(url), reading=MANIFEST_NAME)
        remote = RemoteStore(str(url), stopped or threading.Event())
        try:
            text = remote.with_retries(
                MANIFEST_NAME, lambda: _bounded(remote.pieces(MANIFEST_NAME))
            )
        except DatasetError as error:
            if is_missing(error.__cause__):
                raise _no_manifest(url) from None
            raise
        return Manifest.from_json(text, where=f"{remote.url}/{MANIFEST_NAME}")
    path = folder / MANIFEST_NAME
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise _no_manifest(url) if folder.exists() else _no_folder(url, folder) from None
    except NotADirectoryError:
        if not folder.is_file():  # the path continues behind a file
            raise _no_folder(url, folder) from None
        raise ManifestError(
            f"{url}: a file, not a dataset: build a dataset with "
            f"`thdpack preprocess {url} --out DATASET`"
        ) from None
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror}") from None
    return Manifest.from_json(text, where=str(path))


def _bounded(pieces: Iterator[bytes]) -> bytes:
    """Join pieces, but stop above the maximum size of a manifest: a server might send endlessly."""
    found = bytearray()
    for piece in pieces:
        found += piece
        if len(found) > MOST_BYTES:
            break
    return bytes(found)


def _no_folder(url: str | Path, folder: Path) -> ManifestError:
    where = "" if folder.is_absolute() else f" in {Path.cwd()}"
    return ManifestError(
        f"{url}: there is no such folder{where}: check the path, or build the dataset with "
        f"`thdpack preprocess FASTA --out {url}`"
    )


def _no_manifest(url: str | Path) -> ManifestError:
    if work_names(str(url)):
        return ManifestError(
            f"{url}: no {MANIFEST_NAME}: an unfinished build is here: wait for its end, or run its "
            "command again to resume"
        )
    return ManifestError(
        f"{url}: no {MANIFEST_NAME}: this is not a dataset, or its build did not finish. If it "
        f"holds sequences, build a dataset with `thdpack preprocess {url} --out DATASET`"
    )
