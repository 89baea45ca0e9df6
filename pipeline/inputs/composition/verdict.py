"""Rules that distinguish nucleotides and alignments from proteins, and texts of refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.vocabulary import GAPS

NUCLEOTIDES: Final = b"ACGTUN"
CERTAIN: Final = 0.2
"""A text is certainly protein if its share of letters outside NUCLEOTIDES exceeds this value."""
TRANSLATE: Final = "Translate it first"
_SHARE: Final = 0.95
_ENOUGH_LETTERS: Final = 1_000
_FEWEST_LETTERS: Final = 60
"""Minimum number of letters for a verdict. Fewer than _ENOUGH_LETTERS letters look like nucleotides
only if all of them are in NUCLEOTIDES. For more letters, the share _SHARE is enough. The chance
that 60 residues of a protein are all in NUCLEOTIDES is below 1e-30."""
_RARE: Final = 0.02
_GAPS: Final = GAPS.encode()
_RESIDUES_AND_GAPS: Final = bytes([*range(65, 91), *range(97, 123)]) + _GAPS + b"*"
_LOWER: Final = bytes(range(97, 123))


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherLetters:
    """The reason to refuse an input, and the option that allows it.

    looks: description of the input, with counts as evidence
    expected: kind of input that thdpack expects
    remedy: advice to the user, as a sentence without a full stop
    option: command-line option that allows the input
    """

    looks: str
    expected: str
    remedy: str
    option: str

    @property
    def refusal(self) -> str:
        return (
            f"{self.looks}; thdpack expects {self.expected}. {self.remedy}, or give {self.option}"
        )

    @property
    def warning(self) -> str:
        return (
            f"{self.looks}; thdpack expects {self.expected}: `thdpack preprocess` refuses this "
            f"input without {self.option}"
        )


def nucleotides_in(counts: Mapping[str, int], whole: bool, place: str = "") -> OtherLetters | None:
    """Return a reason to refuse an input if nearly all letters are nucleotides.

    Repeats such as poly-A are not refused. Therefore at least three of A, C, G and T (or U) must be
    common, or at least half of the letters must be N, as at the start of a chromosome.
    """
    letters = counts["all"]
    known = sum(counts[letter] for letter in NUCLEOTIDES.decode())
    enough = _SHARE * letters if letters >= _ENOUGH_LETTERS else letters
    if letters < _FEWEST_LETTERS or known < enough:
        return None
    bases = (counts["A"], counts["C"], counts["G"], counts["T"] + counts["U"])
    if sum(base > _RARE * letters for base in bases) < 3 and counts["N"] < letters / 2:
        return None
    some = f"its {letters:,} letters" if whole else f"the first {letters:,} letters"
    if place:
        some = f"{letters:,} letters from {place} on"
    share = f"{100 * known // letters} % of {some} are A, C, G, T, U or N"
    return OtherLetters(
        looks=f"looks like nucleotides ({share})",
        expected="proteins",
        remedy=TRANSLATE,
        option="--allow-nucleotides",
    )


def alignment_of(rows: Sequence[bytes], place: str = "") -> OtherLetters | None:
    """Return a reason to refuse an input if all rows are equally long and at least half have gaps.

    In the A3M format, lower-case letters are insertions, which do not count in the length.
    """
    gapped = sum(any(gap in row for gap in _GAPS) for row in rows)
    if len(rows) < 2 or 2 * gapped < len(rows):
        return None
    others = sum(len(row.translate(None, _RESIDUES_AND_GAPS)) for row in rows)
    if others > (1 - _SHARE) * sum(map(len, rows)):  # not residues, for example dates with hyphens
        return None
    columns = {len(row) for row in rows}
    if len(columns) > 1:
        columns = {len(row.translate(None, _LOWER + b".")) for row in rows}
    if len(columns) > 1:
        return None
    some = f"{len(rows):,} records from {place} on" if place else f"the first {len(rows):,} records"
    gaps = f"{gapped:,} of {some} have gaps"
    return OtherLetters(
        looks=f"looks like an alignment ({gaps}, and all have {columns.pop():,} columns)",
        expected="unaligned proteins",
        remedy="Remove the gaps (- and .) first",
        option="--allow-alignment",
    )
