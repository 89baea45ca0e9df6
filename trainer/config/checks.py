"""Checks that several groups of options share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from schemas.text.option_checks import flag


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
