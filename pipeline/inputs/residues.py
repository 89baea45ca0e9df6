"""Rules for letters: each byte of a sequence has a token id, or belongs to a class of `Letter`.

`letter_classes` returns these rules as a table. `fasta_kernel` applies the table to plain ASCII, as
fast as a disk delivers text. `residues_of` and `encode` apply the table to other text. These
functions are slower than the kernel, and return the same residues.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.vocabulary import ESM2, Vocabulary


class Letter(IntEnum):
    """Class of a byte that has no token id. All token ids are below these values."""

    NEWLINE = 64
    BLANK = 65
    """A space: skipped anywhere in a line."""
    UNKNOWN = 66
    """Any other ASCII character: becomes <unk>."""
    STAR = 67
    """`*`: dropped at the end of a record, <unk> anywhere else."""
    SPACE = 68
    """Other ASCII white space: skipped at the end of a line, <unk> elsewhere in a line."""
    NOT_ASCII = 69
    """Part of a character outside ASCII. White space is treated like SPACE; each other character
    becomes one <unk>."""
    BINARY = 70
    """A control character: the file is not text."""


BINARY_DATA: Final = "binary data; download or copy the file again"
"""Error for a control character among residues, with the remedy."""


def letter_classes(vocabulary: Vocabulary) -> NDArray[np.uint8]:
    """Return uint8[256]: each byte's token id, or its `Letter`.

    Upper-case and lower-case letters have the same token id.
    """
    classes = np.full(256, Letter.UNKNOWN, dtype=np.uint8)
    classes[: ord(" ")] = Letter.BINARY
    classes[127] = Letter.BINARY
    classes[128:] = Letter.NOT_ASCII
    classes[list(b"\t\v\f\x1c\x1d\x1e\x1f")] = Letter.SPACE
    classes[list(b"\n\r")] = Letter.NEWLINE
    classes[ord(" ")] = Letter.BLANK
    classes[ord("*")] = Letter.STAR
    for letter, token in vocabulary.letters.items():
        classes[[ord(letter), ord(letter.lower())]] = token
    return classes


def _bytes_of(*letters: Letter) -> str:
    """Return all characters of some classes, which must have the same characters in every
    vocabulary."""
    return bytes(np.flatnonzero(np.isin(letter_classes(ESM2), letters)).astype(np.uint8)).decode()


ASCII_BLANKS: Final = _bytes_of(Letter.BLANK, Letter.SPACE)
"""ASCII white space inside a line. An id ends at the first such character."""
LINE_END: Final = re.compile("\r\n|[" + _bytes_of(Letter.NEWLINE) + "]")
_BINARY: Final = re.compile("[" + re.escape(_bytes_of(Letter.BINARY)) + "]")


def residues_of(lines: str, *, comments: bool) -> str:
    """Return the residues in the lines of a record. Line ends and one trailing `*` are removed.

    White space of any kind is removed at the end of a line. Spaces are removed anywhere.

    Args:
        lines: text after the header.
        comments: whether to skip lines that start with `;`.
    Raises:
        ValueError: the text has a control character, so it is binary data. The exception's second
            argument is the character's position in `lines`.
    """
    control = _BINARY.search(lines)
    if control is not None:
        raise ValueError(f"control character {control.group()!r}: {BINARY_DATA}", control.start())
    kept = (
        line.rstrip() for line in LINE_END.split(lines) if not (comments and line.startswith(";"))
    )
    return "".join(kept).replace(" ", "").removesuffix("*")


def encode(residues: str, classes: NDArray[np.uint8], unk: int) -> tuple[NDArray[np.uint8], int]:
    """Return the token ids of residues, one for each character, and the number of <unk>.

    Returns:
        uint8[characters], number of characters outside the vocabulary.
    """
    points = np.frombuffer(residues.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    tokens = classes[np.minimum(points, 255)]  # characters above 127 are NOT_ASCII
    outside = tokens >= min(Letter)
    return np.where(outside, np.uint8(unk), tokens), int(outside.sum())


def first_unknown_letter(lines: str, classes: NDArray[np.uint8]) -> tuple[str, int] | None:
    """Return the first letter of a FASTA record that becomes <unk>, and its line number from 0."""
    star = None  # the first `*`, which is unknown unless it ends the record
    for number, line in enumerate(LINE_END.split(lines)):
        for letter in "" if line.startswith(";") else line.rstrip():
            kind = classes[min(ord(letter), 255)]
            if kind == Letter.STAR and star is None:
                star = letter, number
            elif kind in (Letter.UNKNOWN, Letter.SPACE, Letter.NOT_ASCII):
                return star or (letter, number)
            elif kind < min(Letter) and star is not None:
                return star
    return star
