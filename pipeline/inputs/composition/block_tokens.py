"""Judge samples of the tokens in each block of records that a task reads.

While a build is planned, only the beginnings of FASTA files are judged. Nucleotides or an alignment
may also be in files of other formats, or later in a FASTA file. Tasks therefore examine up
to _PLACES places in each block.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.inputs.composition.verdict import (
    CERTAIN,
    NUCLEOTIDES,
    TRANSLATE,
    OtherLetters,
    alignment_of,
    nucleotides_in,
)
from pipeline.inputs.record_block import RecordBlock
from pipeline.inputs.source import Allowed, Source
from schemas.errors import InputError
from schemas.vocabulary import ESM2, GAPS

_SAMPLE_RECORDS: Final = 1_000
_SAMPLE_TOKENS: Final = 1 << 20
_PLACES: Final = 16
_LOOK_TOKENS: Final = 1 << 9
"""Number of tokens that are examined first at each place."""
_LATER_TOKENS: Final = 1 << 18
"""Number of tokens to judge if a place looks odd. In a sample of this size, proteins do not look
like nucleotides by chance."""
_ANNOTATED: Final = frozenset({"genbank", "embl"})
"""Formats whose records are genomes with annotated genes."""
_GIVE_PROTEINS: Final = (
    "It reads the sequences of records, not the /translation of their features. Give the proteins "
    "of the genes instead, as FASTA (.faa) or GenPept (.gp)"
)
_GAP_TOKENS: Final = np.array([ESM2.id(gap) for gap in GAPS])
_OTHER, _NUCLEOTIDE, _GAP = range(3)
_NUCLEOTIDE_TOKENS: Final = np.array([ESM2.id(letter) for letter in NUCLEOTIDES.decode()])
_KINDS: Final = np.full(256, _OTHER, dtype=np.uint8)
"""uint8[256], kind of each token id."""
_KINDS[_NUCLEOTIDE_TOKENS] = _NUCLEOTIDE
_KINDS[_GAP_TOKENS] = _GAP


def refuse_other_tokens(
    source: Source, block: RecordBlock, allowed: Allowed, *, first: bool, judged: bool
) -> None:
    """Refuse a source if a block of its records looks like nucleotides or an alignment.

    Args:
        first: whether the block begins with the source's first record.
        judged: whether the beginning of the source was judged before.
    Raises:
        InputError: some records look like nucleotides, or like an alignment.
    """
    if allowed.everything:
        return
    said = other_tokens(source, block, allowed, first=first, judged=judged)
    if said is not None:
        raise InputError(said.refusal, source=source.url)


def other_tokens(
    source: Source, block: RecordBlock, allowed: Allowed, *, first: bool, judged: bool = False
) -> OtherLetters | None:
    """Judge a block of records in any format. Return the reason to refuse the source, or None.

    If no place looks odd, the check takes about 0.2 % of a map task's time.

    Args:
        first: whether the block begins with the source's first record.
        judged: whether the beginning of the source was judged before.
    """
    said = None
    if first and not judged:
        records = min(len(block), _SAMPLE_RECORDS)
        said = _judged(block, 0, min(int(block.ends[records - 1]), _SAMPLE_TOKENS), allowed, "")
    for record in _odd_places(block):
        if said is not None:
            break
        if record or not first:
            stop = _begin(block, record) + _LATER_TOKENS
            name = block.id(record)
            place = f"record {name!r}" if name else "a record without an id"
            said = _judged(block, record, stop, allowed, place)
    if said is not None and source.format in _ANNOTATED and said.remedy == TRANSLATE:
        return replace(said, remedy=_GIVE_PROTEINS)
    return said


def _odd_places(block: RecordBlock) -> list[int]:
    """Return up to _PLACES records, spread over a block, whose tokens may not be proteins.

    At least _LATER_TOKENS tokens of the block follow the start of each of these records. A block
    with fewer tokens is examined only at its first record.
    """
    total = int(block.ends[-1])
    if total == 0:
        return []
    targets = np.minimum(np.arange(_PLACES) * total // _PLACES, max(0, total - _LATER_TOKENS))
    records = np.searchsorted(block.ends, targets, side="right")
    begins = np.where(records > 0, block.ends[records - 1], 0)
    places = np.minimum(begins[:, np.newaxis] + np.arange(_LOOK_TOKENS), total - 1)
    kinds = _KINDS[block.tokens[places]]
    odd = ((kinds == _OTHER).mean(axis=1) <= CERTAIN) | (kinds == _GAP).any(axis=1)
    return sorted(set(records[odd].tolist()))


def _begin(block: RecordBlock, record: int) -> int:
    """Return the index of a record's first token."""
    return int(block.ends[record - 1]) if record else 0


def _counts(tokens: NDArray[np.uint8]) -> tuple[dict[str, int], int]:
    """Return the number of times that each nucleotide's letter occurs, and the number of gaps.

    The value of key `all` is the number of all letters. Gaps are not letters.
    """
    times = np.bincount(tokens, minlength=len(ESM2))
    gaps = int(times[_GAP_TOKENS].sum())
    found = times[_NUCLEOTIDE_TOKENS].tolist()
    counts = dict(zip(NUCLEOTIDES.decode(), found, strict=True))
    return {**counts, "all": int(tokens.size) - gaps}, gaps


def _judged(
    block: RecordBlock, record: int, stop: int, allowed: Allowed, place: str
) -> OtherLetters | None:
    """Judge the tokens of a block from the beginning of a record to token `stop`.

    Args:
        place: description of the record; empty for the first record of a source.
    """
    begin = _begin(block, record)
    tokens = block.tokens[begin:stop]
    counts, gaps = _counts(tokens)
    said = None
    if not allowed.nucleotides:
        said = nucleotides_in(counts, tokens.size == block.tokens.size, place)
    if said is None and not allowed.alignment and gaps:
        last = int(np.searchsorted(block.ends, stop, side="right"))
        said = _alignment(tokens, block.ends[record:last] - begin, place)
    return said


def _alignment(
    tokens: NDArray[np.uint8], ends: NDArray[np.int64], place: str
) -> OtherLetters | None:
    """Judge whole records. ends[i] is the index after the last token of record i."""
    edges = np.concatenate([np.zeros(1, dtype=np.int64), ends])
    dots = np.concatenate([edges[:1], np.cumsum(tokens == ESM2.id("."))])
    if all(np.unique(np.diff(at)).size != 1 for at in (edges, edges - dots[edges])):
        return None  # lengths differ: not an alignment, so skip the slow conversion to text
    texts = [
        "".join(ESM2.tokens[token][:1] for token in tokens[start:end]).encode()
        for start, end in zip(edges[:-1], ends, strict=True)
    ]
    return alignment_of(texts, place)
