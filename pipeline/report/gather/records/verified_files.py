"""Verify the files of records/. If the dataset is remote, download the files first."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import xxhash

from pipeline.storage.file_hash import difference, hash_file
from pipeline.storage.retries import RemoteStore, WrongContentError
from pipeline.storage.urls import local_path
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.manifest_entries import RecordsEntry

_FETCHED_AT_ONCE: Final = 8
"""Number of concurrent downloads. A download mostly waits for the store."""


@contextmanager
def records_files(url: str, manifest: Manifest) -> Iterator[list[Path]]:
    """Provide verified local files of records/ while the context lasts.

    The files are a local dataset's own files, or temporary copies of a remote dataset's files.

    Raises:
        DatasetError: a file is missing, or differs from the manifest.
    """
    folder = local_path(url)
    if folder is not None:
        _check_local(folder, manifest)
        yield [folder / entry.name for entry in manifest.records]
        return
    with tempfile.TemporaryDirectory(prefix="thdpack-stats-") as scratch:
        remote = RemoteStore(url, threading.Event())
        places = [Path(scratch) / f"{i}.parquet" for i in range(len(manifest.records))]
        with ThreadPoolExecutor(_FETCHED_AT_ONCE) as threads:
            try:
                paths = list(threads.map(partial(_fetched, remote), manifest.records, places))
            except BaseException:
                # stop the downloads in progress: otherwise, the context would wait for their end
                remote.stopped.set()
                raise
        yield paths


def _check_local(folder: Path, manifest: Manifest) -> None:
    """Check the size of every file of the dataset, and the hashes of the files of records/.

    `thdpack verify` also checks the hashes of the shards.
    """
    for entry in manifest.files():
        path = folder / entry.name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise DatasetError(
                f"{path}: {os.strerror(error.errno or 0)}: "
                "the dataset is incomplete; build it again"
            ) from error
        digest = (
            hash_file(path)[1]
            if isinstance(entry, RecordsEntry) and size == entry.bytes
            else entry.xxh3_128
        )
        problem = difference(path, size, digest, entry)
        if problem is not None:
            raise DatasetError(f"{problem}; build the dataset again")


def _fetched(remote: RemoteStore, entry: RecordsEntry, path: Path) -> Path:
    """Download a file, and verify it. If the file differs from the manifest, retry."""

    def fetch() -> Path:
        digest, size = xxhash.xxh3_128(), 0
        with open(path, "wb") as file:
            for piece in remote.pieces(entry.name):
                digest.update(piece)
                size += file.write(piece)
        problem = difference(f"{remote.url}/{entry.name}", size, digest.hexdigest(), entry)
        if problem is not None and size == entry.bytes:
            raise WrongContentError(problem, digest.hexdigest())
        if problem is not None:
            raise DatasetError(problem)
        return path

    return remote.with_retries(entry.name, fetch)
