"""Expand arguments of the command line into input files, on a disk or in a store.

An argument is a file, a folder or a glob.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pipeline.inputs.file_names import Skipped, as_text, below, only_sequences
from pipeline.inputs.formats.registry import Format
from pipeline.inputs.named.datasets import (
    is_dataset_folder,
    not_an_input,
    refuse_local_dataset,
    refuse_remote_part,
    skipped_dataset,
    without_datasets,
)
from pipeline.inputs.named.lists import errors_of_list, listed
from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.open_input import input_errors, similar_names
from pipeline.storage.ranged_file import request_with_retries
from pipeline.storage.retries import RemoteStore
from pipeline.storage.urls import file_system, is_url, local_path
from schemas.errors import InputError, MissingInputError

_LISTING: Final = 600 << 20
"""A listing has the same deadline as a read of this many bytes. The deadline is long enough to list
millions of objects."""
Named = tuple[str, dict[str, Any] | None]
"""Pair of an input's path or URL, and the input's entry in a store's listing (None without one)."""


def expand(text: str, format: Format) -> tuple[list[Named], list[Skipped]]:
    """Expand one argument.

    Returns:
        Files, and the skipped files of a folder.
    Raises:
        MissingInputError: the argument names no file.
        InputError: the argument is empty, or names a dataset or a folder that cannot be read.
    """
    if not text:
        raise InputError("an empty name among the inputs: is a variable unset?", source='""')
    if text == "-":
        return [("-", None)], []
    if is_url(text):
        return _expand_url(text, format)
    path = Path(text)
    refuse_local_dataset(text)
    if path.is_dir():
        files, odd = _files_in(path)
        chosen, others = only_sequences(text, files, odd, format)
        return [(file, None) for file in chosen], others
    if path.exists() or not glob.has_magic(text):
        return [(text, None)], []
    matches = sorted(
        (m for m in glob.glob(text, recursive=True) if os.path.isfile(m)), key=os.fsencode
    )
    if not matches:
        raise MissingInputError(f"no file matches; {_where_a_glob_ends(text)}", source=text)
    return [(match, None) for match in matches], []


def _where_a_glob_ends(text: str) -> str:
    """Return the place where a glob without a match was looked up, and what to check."""
    folder = os.path.dirname(text)
    if folder and not glob.has_magic(folder) and not os.path.isdir(folder):
        return f"there is no folder {folder}: check its name"
    if os.path.isabs(text):
        return "check the pattern"
    return f"check the pattern, or the current folder, which is {os.getcwd()}"


def refuse_inside(out: str, inputs: tuple[str, ...], *, is_dataset: bool = False) -> None:
    """Refuse to build inside an input folder, because the next build would read the shards.

    Args:
        out: folder or URL of the dataset.
        is_dataset: whether a dataset exists at `out`.
    Raises:
        InputError: the dataset is inside an input. The message names the input.
    """
    target = local_path(out)
    for text, place in listed(
        tuple(text for text in inputs if not text.startswith("@") or _may_be_read_twice(text[1:]))
    ):
        if (
            _is_inside(target, text)
            if target is not None
            else f"{out.rstrip('/')}/".startswith(f"{text.rstrip('/')}/")
        ):
            if is_dataset and _same_folder(target, out, text):
                raise not_an_input(text, text.rstrip("/"))
            with errors_of_list(place):
                raise InputError(
                    "the dataset's folder (--out) is inside this input; choose another", source=text
                )


def _may_be_read_twice(path: str) -> bool:
    """Return whether a list of inputs can be read twice, unlike a pipe."""
    return is_url(path) or not os.path.exists(path) or os.path.isfile(path)


def _is_inside(out: Path, text: str) -> bool:
    """Return whether a local dataset would lie inside an existing folder."""
    if not text or (is_url(text) and not text.startswith(("file://", "local://"))):
        return False
    folder = local_path(text)
    return folder is not None and folder.is_dir() and out.resolve().is_relative_to(folder.resolve())


def _same_folder(target: Path | None, out: str, text: str) -> bool:
    """Return whether an input is the dataset's own folder."""
    folder = local_path(text)
    if target is None or folder is None:
        return text.rstrip("/") == out.rstrip("/")
    return target.resolve() == folder.resolve()


def _expand_url(text: str, format: Format) -> tuple[list[Named], list[Skipped]]:
    """Expand a URL into objects and their entries in a listing. An entry saves a later request."""
    if text.startswith(("http://", "https://")):
        return [(text, None)], []
    fs, path = file_system(text)
    remote = RemoteStore(text, INTERRUPTED)
    with input_errors(text):
        kind = "missing"
        with suppress(FileNotFoundError):
            info = request_with_retries(remote, lambda: fs.info(path), 0)
            kind = info["type"]
        if kind not in ("directory", "missing"):
            # an existing object is read even if its name looks like a glob
            refuse_remote_part(text, [text])
            return [(text, info)], []
        if glob.has_magic(path):
            matches = _urls(
                text,
                path,
                request_with_retries(remote, lambda: fs.glob(path, detail=True), _LISTING),
            )
            if not matches:
                raise MissingInputError("no object matches; check the pattern", source=text)
            refuse_remote_part(text, matches)
            return list(matches.items()), []
        if kind == "missing":
            raise MissingInputError(f"no such file{_similar_object(fs, path, text)}", source=text)
        objects = _urls(
            text, path, request_with_retries(remote, lambda: fs.find(path, detail=True), _LISTING)
        )
    refuse_remote_part(text, [text])
    folder = text.rstrip("/")
    outside, datasets = without_datasets(text, list(objects))
    chosen, others = only_sequences(
        text, [url for url in outside if "/." not in url.removeprefix(folder)], datasets, format
    )
    return [(url, objects[url]) for url in chosen], others


def _similar_object(fs: Any, path: str, text: str) -> str:
    """Return a hint about a missing object: an object of a similar name in the same folder, or ""
    if there is none or the folder cannot be listed."""
    folder, _, name = path.rstrip("/").rpartition("/")
    with suppress(InputError), input_errors(text):  # the missing object is the error to report
        names = [found.rstrip("/").rpartition("/")[2] for found in fs.ls(folder, detail=False)]
        for close in similar_names(name, names):
            return f"; did you mean {text.rstrip('/').removesuffix(name)}{close}?"
    return ""


def _urls(text: str, path: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return the objects of a listing by URL, in byte order.

    fsspec's names lack the protocol and, in some file systems, the host.

    Args:
        text: listed folder or glob, as the user named it.
        path: the same folder or glob, as fsspec names it.
        found: entries of the listing, by fsspec's names.
    """
    protocol, _, rest = text.rstrip("/").partition("://")
    host, slash, inside = rest.partition("/")
    # the start of fsspec's names that stands for the host: a store's bucket, or an empty string
    before = path.removesuffix(f"/{inside}") if slash else path
    urls = {
        f"{protocol}://{host}{name.removeprefix(before)}"
        if name.startswith(f"{before}/")
        else f"{protocol}://{name.lstrip('/')}": info
        for name, info in found.items()
        if info["type"] == "file"
    }
    return {url: urls[url] for url in sorted(urls, key=os.fsencode)}


def _files_in(folder: Path) -> tuple[list[str], list[Skipped]]:
    """Return all files below a folder, in byte order, and every entry that is not a file.

    Hidden files and folders are skipped.

    Raises:
        InputError: a folder cannot be read.
    """

    def refused(error: OSError) -> None:
        raise InputError(f"cannot be read: {error.strerror}", source=str(error.filename))

    files: list[str] = []
    odd: dict[str, str] = {}
    datasets: list[Skipped] = []
    for place, folders, names in os.walk(folder, onerror=refused):
        datasets += [
            skipped_dataset(
                str(Path(place, name)),
                [below(str(folder), file) for file in _paths_below(Path(place, name))],
            )
            for name in sorted(folders)
            if is_dataset_folder(Path(place, name))
        ]
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and not is_dataset_folder(Path(place, name))
        ]
        for name in [*folders, *(name for name in names if not name.startswith("."))]:
            path = str(Path(place, name))
            reason = _not_a_file(path)
            if reason is not None:
                odd[path] = reason
            elif name not in folders:
                files.append(path)
    skipped = [
        Skipped(names=(below(str(folder), path),), line=as_text(f"{path}: {odd[path]}"))
        for path in sorted(odd, key=os.fsencode)
    ]
    return sorted(files, key=os.fsencode), [*skipped, *datasets]


def _paths_below(folder: Path) -> Iterator[str]:
    """Yield the path of each file below a folder."""
    for place, _, names in os.walk(folder):
        yield from (os.path.join(place, name) for name in names)


def _not_a_file(path: str) -> str | None:
    """Return the reason why a path in a folder is skipped; None for files and folders."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return "a broken link" if os.path.islink(path) else f"cannot be read: {error.strerror}"
    if stat.S_ISDIR(mode):
        return (
            "a link to a folder; name it on the command line to read it"
            if os.path.islink(path)
            else None
        )
    return None if stat.S_ISREG(mode) else f"{special(mode)}, not a regular file"


def special(mode: int) -> str:
    """Return the kind of a special file, for messages."""
    return "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
