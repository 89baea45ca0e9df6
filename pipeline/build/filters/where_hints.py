"""Hints for wrong expressions of `--where`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from schemas.errors import OptionError

if TYPE_CHECKING:
    import polars as pl

_LITERAL: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`""")
"""A text in single quotes, or the name of a column in double quotes or backticks."""
_OPERATOR: Final = re.compile(r"&&?|\|\|?|!(?!=)")
_WORDS: Final = {"&": "and", "|": "or", "!": "not"}


def without_literals(text: str) -> str:
    """Return an expression in which `''` replaces each text and each quoted name."""
    return _LITERAL.sub("''", text)


def refuse_other_operators(text: str) -> None:
    """Refuse operators of other languages. Some of them have another meaning in SQL, so the build
    would leave out the wrong records.

    Raises:
        OptionError: the expression has such an operator.
    """
    found = _OPERATOR.search(without_literals(text))
    if found is not None:
        word = _WORDS[found[0][0]]
        more = "; to join texts, use concat" if found[0] == "||" else ""
        raise OptionError(f"--where {text!r} uses {found[0]}: write {word} instead{more}")


def blanks_hint(text: str, columns: Sequence[str]) -> str:
    """Return advice about quotes, for an expression that cannot be read.

    Args:
        columns: names that an expression may use.
    """
    plain = without_literals(text)
    blanks = [name for name in columns if not re.fullmatch(r"\w+", name) and name in plain]
    if blanks:
        return f'the column {blanks[0]} needs double quotes: "{blanks[0]}"'
    return "texts need single quotes, and names with blanks need double quotes"


def regex_hint(message: str) -> str:
    """Return advice if an error's message is about a regular expression, else ""."""
    if "regex" not in message:
        return ""
    return "correct the pattern of regexp_like, or use contains to search for a plain text"


def types_hint(frame: pl.DataFrame) -> str:
    """Return advice on the kind of value to compare each column with.

    Args:
        frame: columns of an expression that cannot be evaluated.
    """
    import polars as pl

    kinds = {pl.String: "a text in single quotes", pl.Boolean: "true or false"}
    comparisons = (
        f"{name} with {kinds.get(kind.base_type(), 'a number without quotes')}"
        for name, kind in frame.schema.items()
    )
    return f"compare {', '.join(comparisons)}"
