"""Read a list of ids that `--exclude` or `--retire` names: one id on each line."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from typing import Final

import numpy as np

from pipeline.build.exclusion.entries import ENOUGH, ListedNames
from pipeline.build.exclusion.name_index import name_hashes
from pipeline.inputs.error_location import plain_text
from pipeline.inputs.source import Source
from schemas.errors import InputError

_SHOWN: Final = 20
"""Number of characters of a line that an error quotes."""
_RESIDUES: Final = re.compile(rb"[A-Za-z]{40,}\*?")
"""Pattern of a line of residues. An id of 40 or more characters has a digit or a separator."""


def listed_names(source: Source, *, first_words: bool = False) -> tuple[ListedNames, int]:
    """Return the distinct ids of a list, and their number.

    Blank lines and lines that begin with # or ; are ignored.

    Args:
        first_words: True to ignore all words of a line after the first, which is the id.
    Raises:
        InputError: the file cannot be read, or a line has several words, residues, a header of
            FASTA, or binary data.
    """
    found = set()
    with plain_text(source) as stream:
        for number, line in enumerate(iter(stream.readline, b""), start=1):
            words = (line.removeprefix(BOM_UTF8) if number == 1 else line).split()
            if not words or words[0].startswith((b"#", b";")):
                continue
            if len(words) > 1 and not first_words:
                raise InputError(
                    f"{len(words)} words, expected one id on each line of a list of ids",
                    source=source.url,
                    line=number,
                )
            if words[0].startswith(b">") or b"\0" in words[0]:
                what = "binary data" if b"\0" in words[0] else "a header of FASTA"
                raise InputError(
                    f"{what}, expected one id on each line of a list of ids",
                    source=source.url,
                    line=number,
                )
            _refuse_residues(words[0], source, number)
            found.add(words[0])
    names = sorted(found)
    hashes = name_hashes(names)
    order = np.argsort(hashes.view("S16"))
    entries = ListedNames(
        ids=np.frombuffer(b"".join(names), dtype=np.uint8),
        id_edges=np.cumsum([0, *map(len, names)], dtype=np.int64),
        hash=hashes[order].view(np.uint8),
        first=np.arange(len(names) + 1),
        match=order,
        aligned=np.full(len(names), ENOUGH),
    )
    return entries, len(names)


def _refuse_residues(word: bytes, source: Source, line: int) -> None:
    """Refuse a sequence where an id is expected.

    Raises:
        InputError: the line looks like residues.
    """
    if _RESIDUES.fullmatch(word):
        begin = word[:_SHOWN].decode()
        raise InputError(
            f"{begin + '…'!r} looks like residues, but a file without headers is a list of ids; "
            "to leave out sequences, give FASTA: write a line such as >name before each sequence",
            source=source.url,
            line=line,
        )
