"""The content of a FASTA file by Biopython and plain code: slow, and the reference of tests."""

from __future__ import annotations

import io
import re

from Bio.SeqIO.FastaIO import SimpleFastaParser

from schemas.vocabulary import ESM2

Record = tuple[str, list[int]]


def biopython(data: bytes) -> list[Record] | None:
    """Return (id, token ids) of each record by SimpleFastaParser; None if it refuses the file."""
    try:
        parsed = list(SimpleFastaParser(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")))
    except UnicodeDecodeError:
        return None
    return [(first_word(title), tokens(residues)) for title, residues in parsed]


def first_word(title: str) -> str:
    """Return the id of a title as Biopython's SeqIO does, except that only ASCII blanks end it."""
    blanks = " \t\v\f\x1c\x1d\x1e\x1f"
    return re.split(f"[{blanks}]", title.lstrip(blanks), maxsplit=1)[0]


def tokens(residues: str) -> list[int]:
    """Return token ids without specials: upper case, one trailing `*` removed, others <unk>."""
    return [
        ESM2.letters.get(letter.upper() if letter.isascii() else "", ESM2.unk)
        for letter in residues.removesuffix("*")
    ]


def beyond_biopython(data: bytes) -> bool:
    """Tell whether our format differs from Biopython's for this text.

    It does for `;` lines, a byte-order mark, and text before the first `>`.
    """
    lines = re.split(rb"\r\n|\r|\n", data)
    first = next((i for i, line in enumerate(lines) if line.startswith(b">")), len(lines))
    return (
        data.startswith(b"\xef\xbb\xbf")
        or any(line.startswith(b";") for line in lines)
        or any(line.strip() for line in lines[:first])
    )
