"""Replace control characters and invisible characters in names, so that they are safe to print."""

from __future__ import annotations

import re
from typing import Final

# control characters, surrogates, non-characters, and marks that reverse the direction of text
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]"
)


def printable(text: str) -> str:
    """Return `text` with unprintable characters replaced by codes such as `\\x1b` or `\\u202e`."""
    return _UNPRINTABLE.sub(_code, text)


def _code(found: re.Match[str]) -> str:
    point = ord(found.group())
    return f"\\x{point:02x}" if point < 256 else f"\\u{point:04x}"


def shortened(text: str, length: int = 60) -> str:
    """Return `text`. If it has more than `length` characters, replace its middle by `…`."""
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[: length - 1 - half]}…{text[-half:]}"
