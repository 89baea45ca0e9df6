"""Lists of inputs: the argument `@FILE` stands for the inputs that FILE names, one on each line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pipeline.inputs.file_names import as_text
from pipeline.storage.open_input import open_input
from pipeline.storage.probe.first_contact import refuse_unreachable_inputs
from pipeline.storage.urls import is_url
from schemas.errors import InputError, OptionError


class Argument(NamedTuple):
    """An input as the user named it.

    place: list and line that name it, such as `inputs.txt:3`; "" for the command line
    """

    text: str
    place: str = ""


def listed(inputs: Sequence[str]) -> Iterator[Argument]:
    """Yield the inputs. Instead of `@FILE`, yield the inputs that FILE lists.

    A list has one input per line. Blank lines and lines that start with # are skipped.

    Raises:
        InputError: a list cannot be read, is not text, names no input, or names what is not one.
    """
    for text in inputs:
        if text.startswith("@"):
            yield from _inputs_in(text[1:])
        else:
            yield Argument(text)


def _inputs_in(path: str) -> list[Argument]:
    refuse_unreachable_inputs([path])
    with open_input(path) as file:
        content = b"".join(iter(lambda: file.read(1 << 20), b""))
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            "not a list of inputs, because it is not text in UTF-8; to read the file itself, name "
            "it without @",
            source=path,
        ) from error
    found = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        if line == "-":
            raise InputError(
                "a list cannot name standard input (-): give - on the command line instead",
                source=path,
                line=number,
            )
        if line.startswith("@") and not os.path.exists(line):
            raise InputError(
                f"a list cannot name another list: give {line} on the command line instead",
                source=path,
                line=number,
            )
        found.append(Argument(line, f"{path}:{number}"))
    if not found:
        raise InputError(
            "this list names no input; write one file, folder or glob on each line", source=path
        )
    return found


@contextmanager
def errors_of_list(place: str) -> Iterator[None]:
    """Let an error about an input begin with `place`, the list and line that name it.

    Nothing changes if `place` is "".
    """
    try:
        yield
    except InputError as error:
        if not place:
            raise
        raise error.changed(source=f"{place}: {error.source}") from error.__cause__


def refuse_twins(urls: Sequence[str], places: Sequence[str]) -> None:
    """Refuse an input that is named twice.

    Args:
        urls: the inputs.
        places: for each, the list and line that name it; "" for the command line.
    Raises:
        OptionError: an input is named twice.
    """
    seen: dict[str, str] = {}
    for url, place in zip(urls, places, strict=True):
        key = url if is_url(url) or url == "-" else os.path.realpath(url)
        if key in seen:
            twice = {seen[key] or "the command line", place or "the command line"}
            where = f", by {' and '.join(sorted(twice))}" if seen[key] or place else ""
            raise OptionError(
                f"{as_text(url)}: named twice among the inputs{where}; its records would all be "
                "duplicates: name it once"
            )
        seen[key] = place
