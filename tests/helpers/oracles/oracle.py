"""Slow FASTA parser, built on Biopython. Tests use its results as the reference."""

from __future__ import annotations

import io
import re

from Bio.SeqIO.FastaIO import SimpleFastaParser

from schemas.vocabulary import ESM2

Record = tuple[str, list[int]]


def biopython(data: bytes) -> list[Record] | None:
    """Return (id, token ids) of each record, parsed by Biopython's SimpleFastaParser. Return None
    if the file is not UTF-8.
    """
    try:
        parsed = list(SimpleFastaParser(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")))
    except UnicodeDecodeError:
        return None
    return [(first_word(title), tokens(residues)) for title, residues in parsed]


def titles(data: bytes) -> list[str]:
    """Return the header of each record of a file in UTF-8."""
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
    return [title for title, _ in SimpleFastaParser(text)]


def first_word(title: str) -> str:
    """Return the id of a record: the first word of its title, as in Biopython's SeqIO. Only ASCII
    blanks end the word.
    """
    blanks = " \t\v\f\x1c\x1d\x1e\x1f"
    return re.split(f"[{blanks}]", title.lstrip(blanks), maxsplit=1)[0]


def tokens(residues: str) -> list[int]:
    """Return token ids without special tokens. One trailing `*` is removed, lower case becomes
    upper case, and unknown letters become <unk>.
    """
    return [
        ESM2.letters.get(letter.upper() if letter.isascii() else "", ESM2.unk)
        for letter in residues.removesuffix("*")
    ]


def beyond_biopython(data: bytes) -> bool:
    """Return whether a text has a feature that thdpack and Biopython read differently. These
    features are a line that begins with `;`, a byte-order mark, and text before the first `>`.
    """
    lines = re.split(rb"\r\n|\r|\n", data)
    first = next((i for i, line in enumerate(lines) if line.startswith(b">")), len(lines))
    return (
        data.startswith(b"\xef\xbb\xbf")
        or any(line.startswith(b";") for line in lines)
        or any(line.strip() for line in lines[:first])
    )
