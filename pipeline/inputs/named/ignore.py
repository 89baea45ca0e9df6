"""Leave out files of input folders and globs (--ignore), as in the simplest form of .gitignore."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from pipeline.inputs.file_names import Skipped, as_text, below, some_names
from pipeline.inputs.named.expand import Named
from schemas.errors import InputError
from schemas.text.phrases import plural

_ADVICE: Final = "; to leave this file out, give --ignore "
_MOST_OPTIONS: Final = 20
"""Maximum number of --ignore options in a message."""


class IgnoredFiles:
    """Files that the user leaves out.

    A pattern is compared with the end of each path below the input folder. For example, `*.dna.fa`
    is compared with the file name, and `old/*.fa` with the last folder and the file name. A pattern
    that begins with a slash is compared with the whole path. A pattern that matches a folder leaves
    out all files in the folder and its sub-folders.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._unused: Final = dict.fromkeys(patterns)
        self._patterns: Final = patterns

    def kept(
        self, text: str, found: list[Named], skipped: list[Skipped]
    ) -> tuple[list[Named], list[Skipped]]:
        """Return the files to read, and all skipped files, ignored files included.

        Args:
            text: input as the user named it. If this is a file, it is never left out.
            found: files of this input.
            skipped: files of this input that are skipped for other reasons. A pattern that matches
                only such files counts as used, and causes no error.
        Raises:
            InputError: no file remains.
        """
        if not self._patterns or not found_in(text, found):
            return found, skipped
        for each in skipped:
            for name in each.names:
                self._matches(name)
        root = _root(text)
        kept: list[Named] = []
        left_out: list[str] = []
        for url, listing in found:
            name = below(root, url)
            if self._matches(name):
                left_out.append(name)
            else:
                kept.append((url, listing))
        if not kept:
            raise InputError("--ignore leaves out every sequence file", source=text)
        if not left_out:
            return kept, skipped
        line = as_text(f"{text}: {some_names('', left_out)}: --ignore")
        return kept, [*skipped, Skipped(names=tuple(left_out), line=line)]

    def _matches(self, name: str) -> bool:
        """Return whether a pattern matches a path below the folder. Mark such patterns as used."""
        path = PurePosixPath("/", name)
        matching = [
            pattern
            for pattern in self._patterns
            if any(place.match(pattern) for place in (path, *path.parents[:-1]))
        ]
        for pattern in matching:
            self._unused.pop(pattern, None)
        return bool(matching)

    def refuse_unused(self) -> None:
        """Refuse a pattern that matched no file, because it is probably misspelt.

        Raises:
            InputError: a pattern matched no file of a folder or glob.
        """
        for pattern in self._unused:
            raise InputError(
                "matches no file of the input folders and globs (a file that is itself named as an "
                "input is always read)",
                source=f"--ignore {shlex.quote(pattern)}",
            )


def found_in(text: str, found: Sequence[Named]) -> bool:
    """Return whether an input is a folder or a glob, and not the name of a file."""
    return [url for url, _ in found] != [text]


def with_ignore(error: InputError, url: str, *, found: bool) -> InputError:
    """Add advice to an error about a file's content: the --ignore option that leaves out the file.

    Args:
        found: whether the file was found in a folder or by a glob.
    """
    if not found or error.source != url or isinstance(error.__cause__, OSError):
        return error
    return error.changed(message=f"{error.message}{_ADVICE}{_pattern(url)}")


def with_others(errors: Sequence[InputError]) -> InputError:
    """Return the first error. If there are several, its message names the other files too, and the
    options that leave out all files.

    Args:
        errors: results of `with_ignore`.
    """
    first, *others = errors
    if not others:
        return first
    message = first.message.partition(_ADVICE)[0]
    message += f"; {plural(len(others), 'other file')} cannot be read either: "
    message += some_names("", [PurePosixPath(error.source).name for error in others])
    names = dict.fromkeys(_pattern(error.source) for error in errors)
    if all(_ADVICE in error.message for error in errors) and len(names) <= _MOST_OPTIONS:
        message += f"; to leave these files out, give {' '.join(f'--ignore {n}' for n in names)}"
    return first.changed(message=message)


def _pattern(url: str) -> str:
    """Return the value of --ignore that matches the name of a file, as a word for a shell."""
    return shlex.quote(glob.escape(PurePosixPath(url).name))


def _root(text: str) -> str:
    """Return an input folder; for a glob, the folders before the first part with a wildcard."""
    parts = text.rstrip("/").split("/")
    wild = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return "/".join(parts[:wild]) or text[: text.startswith("/")]
