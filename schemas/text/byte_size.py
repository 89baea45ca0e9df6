"""Sizes in bytes, written as text such as 512M or 2G."""

from __future__ import annotations

from typing import Final

from schemas.text.phrases import plural

_LEAST_MEMORY: Final = 256 << 20
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_bytes(size: str | int, *, name: str) -> int:
    """Return the bytes of a size such as `512M`, `2G`, `1.5GiB` or `4096`. K is 1024 bytes.

    Args:
        name: name of the option, for the error.
    Raises:
        ValueError: `size` is not a size in bytes, or is not above 0.
    """
    if not isinstance(size, str):
        return size
    number = size.strip().upper().removesuffix("B").removesuffix("I")
    scale = _UNITS.get(number[-1:], 1)
    try:
        found = int(float(number[:-1] if scale > 1 else number) * scale)
    except (ValueError, OverflowError):
        found = 0
    if found <= 0:
        raise ValueError(f"{name} {size!r} is not a size, expected something like 512M or 2G")
    return found


def megabytes(count: float) -> str:
    """Return a number of bytes in MB, or in kB if it is less than 0.1 MB."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def check_memory(size: str) -> None:
    """Check the value of --memory.

    Raises:
        ValueError: `size` is not a size in bytes, or is less than one task of a build needs.
    """
    if parse_bytes(size, name="--memory") < _LEAST_MEMORY:
        shown = size.strip()
        means = f"means {plural(int(shown), 'byte')}," if shown.isdecimal() else "is"
        raise ValueError(
            f"--memory {shown} {means} less than one task needs: "
            f"give at least {_LEAST_MEMORY >> 20}M"
        )
