"""Frequency of each residue letter in the data, compared with its frequency in Swiss-Prot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pipeline.report.model import Composition, LetterCount

BACKGROUND_SOURCE: Final = (
    "UniProtKB/Swiss-Prot 2014_01, the 516,371 records with GO annotation, "
    "186,717,374 residues, counted for thdpack"
)
# fmt: off
_BACKGROUND: Final = {
    "L": 18048355, "A": 15471655, "G": 13281044, "V": 12874006, "E": 12574432,
    "S": 12248336, "I": 11134502, "K": 10886717, "R": 10328810, "D": 10183960,
    "T": 9984546, "P": 8795596, "N": 7553523, "Q": 7328681, "F": 7223711,
    "Y": 5446414, "M": 4518671, "H": 4239561, "C": 2553802, "W": 2031595,
    "X": 8456, "B": 343, "U": 318, "Z": 311, "O": 29,
}
# fmt: on
_TOTAL: Final = sum(_BACKGROUND.values())
STANDARD: Final = tuple(_BACKGROUND)[:20]
"""The twenty amino acids, in descending order of their frequency in Swiss-Prot."""
UNKNOWN: Final = "<unk>"


def composition(
    counts: Mapping[str, int],
    *,
    over: Literal["buckets", "input"],
    unknown_records: int,
    unknown_residues: int,
) -> Composition:
    """Return the letter frequencies of a report.

    Args:
        counts: number of residues by letter, `<unk>` included; a missing letter counts as 0.
        over, unknown_records, unknown_residues: see `Composition`.
    """
    total = sum(counts.values())
    rare = [letter for letter in counts if letter not in STANDARD and letter != UNKNOWN]
    letters = [_letter(letter, "standard", counts.get(letter, 0), total) for letter in STANDARD]
    letters += [
        _letter(letter, "rare", counts[letter], total)
        for letter in sorted(rare, key=lambda letter: (-_BACKGROUND.get(letter, 0), letter))
    ]
    letters.append(_letter(UNKNOWN, "unknown", counts.get(UNKNOWN, 0), total))
    return Composition(
        over=over,
        letters=tuple(letters),
        background_source=BACKGROUND_SOURCE,
        unknown_records=unknown_records,
        unknown_residues=unknown_residues,
    )


def _letter(
    letter: str, kind: Literal["standard", "rare", "unknown"], count: int, total: int
) -> LetterCount:
    background = _BACKGROUND[letter] / _TOTAL if letter in _BACKGROUND else None
    return LetterCount(
        letter=letter,
        kind=kind,
        count=count,
        share=count / total if total else 0.0,
        background=background,
    )
