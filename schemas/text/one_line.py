"""Single-line texts that users give and programs display."""

from __future__ import annotations

import re
from typing import Final

MOST_CHARACTERS: Final = 200
ONE_LINE: Final = (
    r"\A(?=.*\S)[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]+\Z"
)
"""Pattern of a line without control characters, line breaks, surrogates, or marks that reverse the
direction of text. Surrogates stand for bytes that are not UTF-8, and JSON cannot hold them."""


def check_one_line(text: str | None, *, name: str) -> None:
    """Check the value of an option. None means that the option was not given.

    Raises:
        ValueError: the text is blank or too long, or has a control character.
    """
    if text is None:
        return
    if not text.strip():
        raise ValueError(f"{name} is empty: give a text, or omit the option")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{name} has {len(text):,} characters, expected at most {MOST_CHARACTERS}")
    if not re.search(ONE_LINE, text):
        raise ValueError(
            f"{name} is {text!r}, expected one line of UTF-8 without control characters"
        )


def on_one_line(text: str) -> str:
    """Return a text with single blanks in place of line breaks and other whitespace."""
    return " ".join(text.split())
