"""Residues to token ids: the plain, slow statement of the rules, and what a block of tokenized records is.

`fasta_kernel` does the same for well-behaved ASCII at disk speed and hands every record it is not sure of to here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordBlock:
    """R tokenized records of one input, in input order. The arrays are views: use them before the next block is read.

    tokens:  uint8[T], residues of all records, no specials; record i is tokens[ends[i-1]:ends[i]]
    ends:    int64[R]
    ids:     uint8[…], UTF-8 of all ids; id i is ids[id_ends[i-1]:id_ends[i]]
    id_ends: int64[R]
    offset:  int64[R], where the record starts in its (decompressed) input, in bytes; in tables and SeqIO formats, its number
    unknown: int64[R], letters that became <unk>
    """

    tokens: NDArray[np.uint8]
    ends: NDArray[np.int64]
    ids: NDArray[np.uint8]
    id_ends: NDArray[np.int64]
    offset: NDArray[np.int64]
    unknown: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.ends.size)


class Letter(IntEnum):
    """What a byte inside a sequence is, where it is not simply a token id (those are below 64)."""

    NEWLINE = 64
    BLANK = 65
    UNKNOWN = 66
    STAR = 67
    ODD = 68
    """Needs the plain reading below: not ASCII, or a space character that only counts inside a line."""
    BINARY = 69


_SPACES: Final = b"\t\v\f\x1c\x1d\x1e\x1f"
_CONTROL: Final = re.compile("[\0-\x08\x0e-\x1b\x7f]")
LINE_END: Final = re.compile("\r\n|\r|\n")


def letter_classes(vocabulary: Vocabulary) -> NDArray[np.uint8]:
    """uint8[256]: the token id of each byte, or its `Letter`. Lower case is read as upper case."""
    classes = np.full(256, Letter.UNKNOWN, dtype=np.uint8)
    classes[: ord(" ")] = Letter.BINARY
    classes[127] = Letter.BINARY
    classes[128:] = Letter.ODD
    classes[list(_SPACES)] = Letter.ODD
    classes[[ord("\n"), ord("\r")]] = Letter.NEWLINE
    classes[ord(" ")] = Letter.BLANK
    classes[ord("*")] = Letter.STAR
    for letter, token in vocabulary.letters.items():
        classes[[ord(letter), ord(letter.lower())]] = token
    return classes


def residues_of(lines: str, *, comments: bool) -> str:
    """The residues in the lines of a record: line ends and blanks go, then one trailing `*`.

    A line loses spaces of any kind at its end and blanks anywhere; with `comments`, lines starting with `;` are skipped.

    Raises:
        ValueError: a control character, with its position in `lines` as second argument: the data is binary.
    """
    control = _CONTROL.search(lines)
    if control is not None:
        raise ValueError(f"control character {control.group()!r}: binary data", control.start())
    kept = (
        line.rstrip() for line in LINE_END.split(lines) if not (comments and line.startswith(";"))
    )
    return "".join(kept).replace(" ", "").removesuffix("*")


def encode(residues: str, classes: NDArray[np.uint8], unk: int) -> tuple[NDArray[np.uint8], int]:
    """Token ids of residues, one for each character, and how many were outside the vocabulary.

    Returns:
        uint8[characters], number of <unk>.
    """
    points = np.frombuffer(residues.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    tokens = classes[np.minimum(points, 255)]
    outside = (tokens >= 64) | (points > 127)
    return np.where(outside, np.uint8(unk), tokens), int(outside.sum())
