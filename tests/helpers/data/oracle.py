"""What a FASTA file says, by Biopython and a few plain lines: the slow truth that the fast path is held against."""

from __future__ import annotations

import io
import re

from Bio.SeqIO.FastaIO import SimpleFastaParser

from schemas.vocabulary import ESM2

Record = tuple[str, list[int]]


def biopython(data: bytes) -> list[Record] | None:
    """(id, token ids) of each record as SimpleFastaParser reads them; None where it refuses."""
    try:
        parsed = list(SimpleFastaParser(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")))
    except UnicodeDecodeError:
        return None
    return [(first_word(title), tokens(residues)) for title, residues in parsed]


def first_word(title: str) -> str:
    """The id as Biopython's SeqIO makes it of a title, but that only ASCII blanks end a word."""
    blanks = " \t\v\f\x1c\x1d\x1e\x1f"
    return re.split(f"[{blanks}]", title.lstrip(blanks), maxsplit=1)[0]


def tokens(residues: str) -> list[int]:
    """The token ids of residues, without specials: upper-cased, one trailing `*` removed, anything else <unk>."""
    return [
        ESM2.letters.get(letter.upper() if letter.isascii() else "", ESM2.unk)
        for letter in residues.removesuffix("*")
    ]


def beyond_biopython(data: bytes) -> bool:
    """Whether DESIGN.md gives this text another reading than Biopython: `;` lines, a byte-order mark, text before the first `>`."""
    lines = re.split(rb"\r\n|\r|\n", data)
    first = next((i for i, line in enumerate(lines) if line.startswith(b">")), len(lines))
    return (
        data.startswith(b"\xef\xbb\xbf")
        or any(line.startswith(b";") for line in lines)
        or any(line.strip() for line in lines[:first])
    )
