"""Checks that several groups of options share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Final

from schemas.text.option_checks import flag

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
"""Pattern of the names in --evaluate."""


class OptionError(ValueError):
    """Options of a run contradict each other, or do not suit its machine, its number of ranks, its
    dataset or the run that it resumes. The exit code is 2.
    """


@contextmanager
def option_errors() -> Iterator[None]:
    """Turn each ValueError into an OptionError."""
    try:
        yield
    except ValueError as error:
        raise OptionError(str(error)) from error


def check_whole(section: Any) -> None:
    """Refuse whole numbers that do not fit into int64, because tensors could not hold them.

    Raises:
        ValueError: a number does not fit. The message names the option.
    """
    for option in fields(section):
        value = getattr(section, option.name)
        if isinstance(value, int) and abs(value) >= 1 << 63:
            raise ValueError(
                f"{flag(option.name)} is {value}, expected a number between -2^63 and 2^63"
            )


def named_files(words: Sequence[str]) -> dict[str, str]:
    """Return the files of --evaluate, by name.

    Args:
        words: values of the option, NAME=FILE each.
    Raises:
        ValueError: a value lacks a name or a file, or two values have the same name.
    """
    found: dict[str, str] = {}
    for word in words:
        name, _, file = word.partition("=")
        if not _NAME.fullmatch(name) or not file:
            raise ValueError(
                f"--evaluate is {word}, expected NAME=FILE, such as gfp=gfp.csv, where NAME has "
                "letters, digits, '.', '_' and '-'"
            )
        if name in found:
            raise ValueError(f"--evaluate has the name {name} twice: choose another name")
        found[name] = file
    return found
