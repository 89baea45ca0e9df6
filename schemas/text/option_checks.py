"""Checks of the values of command-line options. The error names the wrong option and its value."""

from __future__ import annotations

from typing import Any


def flag(name: str) -> str:
    """Return the command line flag of an option, such as --keep-last for keep_last."""
    return f"--{name.replace('_', '-')}"


def check_range(
    section: Any,
    *names: str,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
) -> None:
    """Check that numeric options are in a range.

    Args:
        section: object whose attributes are the options.
        names: names of the attributes.
        least: smallest value that is allowed.
        above: number that the value must exceed.
        most: largest value that is allowed.
    Raises:
        ValueError: an option is outside the range, or not a number (nan).
    """
    for name in names:
        value = getattr(section, name)
        if not (
            (least is None or value >= least)
            and (above is None or value > above)
            and (most is None or value <= most)
        ):
            rules = (("at least", least), ("more than", above), ("up to", most))
            expected = ", ".join(f"{words} {limit}" for words, limit in rules if limit is not None)
            raise ValueError(f"{flag(name)} is {value}, expected {expected}")
