"""Checks that several sections of options share, and the flag of an option."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from schemas.redact import without_credentials


def flag(name: str) -> str:
    """Return the flag of an option, such as --keep-last of keep_last."""
    return f"--{name.replace('_', '-')}"


def check_local(option: str, path: str) -> None:
    """Refuse a URL, which would become the name of a local folder.

    Raises:
        ValueError: the path is a URL.
    """
    if "://" in path or "::" in path:
        raise ValueError(
            f"{option} is {without_credentials(path)}, a URL: it has to be a folder of a local or "
            "mounted file system; copy to or from the object store"
        )


def check_whole(section: Any) -> None:
    """Refuse whole numbers that do not fit into int64: floats and tensors could not hold them.

    Raises:
        ValueError: names the option.
    """
    for option in fields(section):
        value = getattr(section, option.name)
        if isinstance(value, int) and abs(value) >= 1 << 63:
            raise ValueError(
                f"{option.name.replace('_', '-')} is {value}, expected a number below 2^63"
            )
