"""Checks of the values of command-line options. The error names the wrong option and its value."""

from __future__ import annotations

from operator import index
from typing import Any, Final

from schemas.text.redact import without_credentials
from schemas.text.url_spelling import corrected_url

LOCAL_OUT: Final = (
    "use a local folder, and copy it to the store with a command such as `aws s3 sync FOLDER URL`; "
    "docs/guides/training.md has a script that copies the checkpoints of a run in a safe order"
)
LOCAL_WEIGHTS: Final = (
    "copy it to a local folder first, with a command such as `aws s3 sync URL FOLDER`"
)
LOCAL_CACHE: Final = (
    "the cache must be a folder on a local disk, such as /tmp/thdpack-cache. Only the dataset may "
    "be a URL"
)


def flag(name: str) -> str:
    """Return the command line flag of an option, such as --keep-last for keep_last."""
    return f"--{name.replace('_', '-')}"


def whole_number(name: str, value: object) -> int:
    """Return the value of a Python argument as an int. numpy's integers are allowed, too.

    Raises:
        TypeError: the value is not a whole number. The message names the argument.
    """
    try:
        return index(value)  # type: ignore[arg-type] # other types raise TypeError
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected a whole number") from None


def check_range(
    section: Any,
    *names: str,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> None:
    """Check that numeric options are in a range.

    Args:
        section: object whose attributes are the options.
        names: names of the attributes.
        least: smallest value that is allowed.
        above: number that the value must exceed.
        most: largest value that is allowed.
        below: number that must exceed the value; infinity if any finite number is allowed.
    Raises:
        ValueError: an option is outside the range, or not a number (nan).
    """
    for name in names:
        value = getattr(section, name)
        if not (
            (least is None or value >= least)
            and (above is None or value > above)
            and (most is None or value <= most)
            and (below is None or value < below)
        ):
            rules = (("at least", least), ("more than", above), ("up to", most), ("below", below))
            expected = " and ".join(
                f"{words} {limit}" for words, limit in rules if limit is not None
            )
            expected = expected.replace("below inf", "finite")
            if least is not None and least == most:
                expected = str(least)
            raise ValueError(f"{flag(name)} is {value}, expected {expected}")


def check_local(option: str, path: str, remedy: str) -> None:
    """Refuse a URL where a local folder is expected. Otherwise a local folder of that name would be
    created.

    Raises:
        ValueError: the path is a URL. The message ends with the remedy.
    """
    url = corrected_url(path) or path
    if "://" in url or "::" in url:
        raise ValueError(f"{option} is {without_credentials(url)}, a URL: {remedy}")
