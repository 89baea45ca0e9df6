"""Make names from files safe to print: no control characters, no reversed or invisible text."""

from __future__ import annotations

import re
from typing import Final

# controls, surrogates, non-characters, and marks that reverse the direction of text
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]"
)


def printable(text: str) -> str:
    """Return `text` with controls and invisible characters written as `\\x1b` or `\\u202e`."""
    return _UNPRINTABLE.sub(_code, text)


def _code(found: re.Match[str]) -> str:
    point = ord(found.group())
    return f"\\x{point:02x}" if point < 256 else f"\\u{point:04x}"


def shortened(text: str, length: int = 60) -> str:
    """Return `text`, with its middle left out if it is longer than `length`."""
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[: length - 1 - half]}…{text[-half:]}"
