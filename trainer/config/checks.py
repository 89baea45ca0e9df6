"""Checks that several groups of options share."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from schemas.text.option_checks import flag
from schemas.text.redact import without_credentials
from schemas.text.url_spelling import corrected_url


def check_local(option: str, path: str) -> None:
    """Refuse a URL, because the trainer would create a local folder of that name.

    Raises:
        ValueError: the path is a URL.
    """
    url = corrected_url(path) or path
    if "://" in url or "::" in url:
        raise ValueError(
            f"{option} is {without_credentials(url)}, a URL: use a folder of a local or mounted "
            "file system, and copy it to or from the object store yourself"
        )


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
