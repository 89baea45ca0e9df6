"""Find datasets of thdpack among the inputs of a build. A dataset is not an input."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from pipeline.inputs.file_names import Skipped, as_text, below
from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.ranged_file import request_with_retries
from pipeline.storage.read_manifest import read_manifest
from pipeline.storage.retries import RemoteStore
from pipeline.storage.urls import file_system
from schemas.errors import DatasetError, InputError
from schemas.manifest import MANIFEST_NAME, WORK
from schemas.records import RETIRED
from schemas.shard import SPLITS

_RECORDS: Final = "records"
_FOLDERS: Final = (*SPLITS, _RECORDS, RETIRED)
_SUFFIXES: Final = (".arrow", ".parquet")
_MOST_NAMED: Final = 3
"""Maximum number of a dataset's inputs that an error names."""


def not_an_input(text: str, dataset: str) -> InputError:
    """Return the error for an input that is a dataset, or a part of one.

    The error names some of the files that the dataset was built from.

    Args:
        text: input as the user named it.
        dataset: folder or URL of the dataset.
    """
    kind = "a thdpack dataset" if text.rstrip("/") == dataset else "a part of a thdpack dataset"
    try:
        names = [entry.name for entry in read_manifest(dataset).inputs]
    except DatasetError:  # an unfinished build, or a damaged dataset
        names = []
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    named = f": {', '.join(names[:_MOST_NAMED])}{more}" if names else ""
    return InputError(
        f"{kind}, not FASTA: name the FASTA files that the dataset was made from{named}",
        source=text,
    )


def is_dataset_folder(path: Path) -> bool:
    """Return whether a folder is a dataset, or holds the files of an unfinished build."""
    is_dataset = (path / MANIFEST_NAME).is_file() and (path / _RECORDS).is_dir()
    return is_dataset or (path / WORK).is_dir()


def refuse_local_dataset(text: str) -> None:
    """Refuse a path that is a dataset, or a folder or file of a dataset.

    Raises:
        InputError: the message says what to name instead.
    """
    path = Path(text)
    if path.is_dir() and is_dataset_folder(path):
        raise not_an_input(text, text.rstrip("/"))
    owner = _owner(str(path.absolute()))
    if owner is not None and is_dataset_folder(Path(owner)):
        raise not_an_input(text, owner)


def refuse_remote_part(text: str, urls: Iterable[str]) -> None:
    """Refuse a URL that stands for a folder or an object of a dataset.

    A request is sent only if the name of a folder or object is like a name in a dataset.

    Args:
        text: URL or glob, as the user named it.
        urls: folder, or objects, for which `text` stands.
    Raises:
        InputError: the message says what to name instead.
    """
    for owner in dict.fromkeys(map(_owner, urls)):
        if owner is not None and _is_remote_dataset(owner):
            raise not_an_input(text, owner)


def _datasets_among(objects: Iterable[str]) -> list[str]:
    """Return the URLs of folders that are datasets or unfinished builds, from a store's listing."""
    manifests, records, unfinished = set(), set(), set()
    for url in objects:
        folder, _, name = url.rpartition("/")
        if name == MANIFEST_NAME:
            manifests.add(folder)
        elif folder.endswith(f"/{_RECORDS}"):
            records.add(folder.removesuffix(f"/{_RECORDS}"))
        elif f"/{WORK}/" in url:
            unfinished.add(url.partition(f"/{WORK}/")[0])
    return sorted(manifests & records | unfinished, key=os.fsencode)


def without_datasets(folder: str, objects: list[str]) -> tuple[list[str], list[Skipped]]:
    """Return the objects of a listing that are in no dataset, and each dataset as skipped files.

    Args:
        folder: URL of the listed folder, as the user named it.
    Raises:
        InputError: the folder is a dataset.
    """
    skipped = []
    for dataset in _datasets_among(objects):
        if dataset == folder.rstrip("/"):
            raise not_an_input(folder, dataset)
        inside = [url for url in objects if url.startswith(f"{dataset}/")]
        objects = [url for url in objects if not url.startswith(f"{dataset}/")]
        names = [below(folder, url) for url in inside]
        skipped += [skipped_dataset(dataset, names)] if inside else []
    return objects, skipped


def skipped_dataset(dataset: str, names: list[str]) -> Skipped:
    """Return a dataset in an input folder as a skipped folder.

    Args:
        names: paths of the dataset's files, below the input folder.
    """
    return Skipped(names=tuple(names), line=as_text(f"{dataset}: a thdpack dataset, not an input"))


def _owner(path: str) -> str | None:
    """Return the folder that a path belongs to, if the path is named like a part of a dataset."""
    folder, _, name = path.rstrip("/").rpartition("/")
    parent, _, inside = folder.rpartition("/")
    if name in (*_FOLDERS, MANIFEST_NAME):
        owner = folder
    elif inside in _FOLDERS and name.endswith(_SUFFIXES):
        owner = parent
    else:
        return None
    # a bucket named like a part of a dataset, such as s3://train, is in no folder
    return None if not owner or owner.endswith("/") else owner


def _is_remote_dataset(url: str) -> bool:
    """Return whether a folder of a store is a dataset."""
    fs, path = file_system(url)
    remote = RemoteStore(url, INTERRUPTED)

    def exists(name: str) -> bool:
        return bool(fs.exists(f"{path.rstrip('/')}/{name}"))

    try:
        return all(
            request_with_retries(remote, partial(exists, name), 0)
            for name in (MANIFEST_NAME, _RECORDS)
        )
    except PermissionError:  # a user may have the right to read one object only
        return False
