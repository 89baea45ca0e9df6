"""Read the wild type of --wild-type, and make it tokens."""

from __future__ import annotations

import os
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import InputError, OptionError
from schemas.text.phrases import plural
from schemas.vocabulary import ESM2

_SHOWN: Final = 60
"""Maximum number of letters of a wrong --wild-type that an error shows."""


def read_wild_type(text: str) -> str:
    """Return the residues that --wild-type names.

    Args:
        text: a FASTA file of one record, or the residues themselves.
    Raises:
        OptionError: the text is neither a file nor residues.
        InputError: the file cannot be read, or does not have one record of residues.
    """
    if not os.path.exists(text):
        residues = text.strip().upper()
        is_name = "." in text  # ESM-2 has a token for this letter, but it is no residue
        if residues and not is_name and all(letter in ESM2.letters for letter in residues):
            return residues
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise OptionError(
            f"--wild-type is {shown}, which is neither a file nor residues: give a FASTA file of "
            "one record, or the residues themselves"
        )
    try:
        with open(text, encoding="utf-8-sig", errors="replace") as file:
            lines = [line for line in file if line.strip() and not line.startswith(";")]
    except OSError as error:
        raise InputError(str(error.strerror), source=text) from error
    headers = [line for line in lines if line.startswith(">")]
    if len(headers) != 1 or not lines[0].startswith(">"):
        raise InputError(
            f"the file has {plural(len(headers), 'FASTA header')}, expected one record: the wild "
            "type",
            source=text,
        )
    residues = "".join("".join(lines[1:]).split()).upper().removesuffix("*")
    wrong = sorted(set(residues) - set(ESM2.letters))
    if wrong or not residues:
        problem = f"the letter {wrong[0]!r}" if wrong else "no residues"
        raise InputError(f"the wild type has {problem}", source=text)
    return residues


def tokens_of(residues: str) -> NDArray[np.uint8]:
    """Return the tokens of a sequence, uint8[L + 2], with <cls> and <eos>. Letters without a token
    become <unk>.
    """
    ids = [ESM2.letters.get(letter, ESM2.unk) for letter in residues]
    return np.array([ESM2.cls, *ids, ESM2.eos], dtype=np.uint8)
