"""Select the files of a folder that hold sequences, by their names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from pipeline.inputs.formats.registry import FORMATS, Format
from pipeline.storage.urls import is_url
from schemas.errors import InputError

_IN_FOLDERS: Final = tuple(
    suffix for known in FORMATS.values() if known.in_folders for suffix in known.suffixes
)
_NOT_IN_FOLDERS: Final = {
    suffix: name
    for name, known in FORMATS.items()
    if not known.in_folders
    for suffix in known.suffixes
}
"""Names of formats, by suffix. The user must name each file of these formats, not its folder."""
_LIKELY: Final = (".fna", ".ffn", ".frn", *_NOT_IN_FOLDERS)
"""Suffixes of sequence files that are not read from folders, first those of nucleotides."""
_PACKED: Final = (".gz", ".bgz", ".zst", ".xz", ".bz2")
_MOST_NAMED: Final = 3
"""Maximum number of a folder's pipes, devices and broken links that an error names."""
_MOST_SKIPPED: Final = 8
"""Maximum number of skipped files that a message lists by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """Files of an input folder or glob that are not read.

    names: paths below the folder.
    line: message that names some of the files, and the reason.
    """

    names: tuple[str, ...]
    line: str


def only_sequences(
    folder: str, files: list[str], odd: Sequence[Skipped], format: Format
) -> tuple[list[str], list[Skipped]]:
    """Return the sequence files of a folder, and the paths that are skipped.

    Args:
        odd: paths that are not regular files.
    Raises:
        InputError: the folder has no sequence file.
    """
    chosen = [f for f in files if format != "auto" or _is_read_in_folders(f)]
    left = sorted(set(files) - set(chosen), key=os.fsencode)
    left.sort(key=lambda f: suffix(f) not in _LIKELY)
    if not chosen:
        kinds = " ".join(_IN_FOLDERS)
        also = "".join(f"; skipped {each.line}" for each in odd[:_MOST_NAMED])
        also += f"; the folder holds {some_names(folder, left)}" if left else ""
        named = {_NOT_IN_FOLDERS[suffix(f)] for f in left if suffix(f) in _NOT_IN_FOLDERS}
        formats = " or ".join(sorted(named))
        one = f"to read every file of this folder in one format, give --format {formats}"
        raise InputError(
            f"no sequence file in this folder; looked for {kinds}, "
            f"also followed by {' '.join(_PACKED)}{also}",
            source=folder,
            remedy=one if named else "",
        )
    return chosen, [*([_left_out(folder, left)] if left else []), *odd]


def _left_out(folder: str, left: list[str]) -> Skipped:
    """Return the files of a folder that are not read because of their names."""
    line = (
        f"{folder}: {some_names(folder, left)}: not named like protein FASTA, Parquet or Arrow; "
        "name a file on the command line to read it"
    )
    return Skipped(names=tuple(below(folder, f) for f in left), line=as_text(line))


def some_names(folder: str, files: Sequence[str]) -> str:
    """Return the names of a folder's first files, for a message."""
    root = folder.rstrip("/") + "/"
    more = f" and {len(files) - _MOST_SKIPPED:,} more" if len(files) > _MOST_SKIPPED else ""
    return ", ".join(f.removeprefix(root) for f in files[:_MOST_SKIPPED]) + more


def below(root: str, file: str) -> str:
    """Return the path of a file below a folder."""
    if is_url(file):
        return file.removeprefix(root).lstrip("/")
    return os.path.relpath(file, root or os.curdir)


def as_text(name: str) -> str:
    """Return a file's name as text, with escapes such as `\\xff` for bytes that are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def suffix(name: str) -> str:
    """Return the suffix of a file's name in lower case: `.fasta` for x.fasta and for x.FASTA.gz."""
    path = PurePosixPath(name.lower())
    return PurePosixPath(path.stem).suffix if path.suffix in _PACKED else path.suffix


def looks_like_sequences(name: str) -> bool:
    """Return whether a file has the name of a sequence file."""
    return _is_read_in_folders(name) or suffix(name) in _LIKELY


def _is_read_in_folders(name: str) -> bool:
    """Return whether a file is read if the user names its folder."""
    # exclude the cache files that the library `datasets` writes beside a saved dataset
    if PurePosixPath(name).match("cache-*.arrow"):
        return False
    return suffix(name) in _IN_FOLDERS
