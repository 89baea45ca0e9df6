"""Recognise nucleotides and alignments by the first letters of an input.

Nucleotides and alignments parse as protein FASTA, but a dataset of them would be useless. The check
looks at the first few kilobytes of each input, which a build reads anyway to detect the format. If
these bytes look odd, the check reads and judges up to SAMPLE_BYTES of text, because a single odd
record is no reason to refuse an input.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from pipeline.inputs.decompress import (
    ArchiveNeedsError,
    broken_archive_errors,
    decompressed,
)
from pipeline.inputs.source import Allowed, Source
from pipeline.storage.open_input import open_input
from schemas.errors import InputError
from schemas.vocabulary import ESM2, GAPS

if TYPE_CHECKING:
    from pipeline.inputs.record_block import RecordBlock

LOOK_BYTES: Final = 1 << 12
"""Number of bytes of each input that are examined first, too few to start a store's prefetch."""
SAMPLE_BYTES: Final = 1 << 20
"""Number of bytes of text to read and judge if an input's first bytes look odd."""

_NUCLEOTIDES: Final = b"ACGTUN"
_SHARE: Final = 0.95
_ENOUGH_LETTERS: Final = 1_000
_FEWEST_LETTERS: Final = 60
"""Minimum number of letters to judge. Below _ENOUGH_LETTERS letters, all must be letters of
nucleotides; otherwise, the share _SHARE. The chance that 60 residues of a protein are all letters
of nucleotides is below 1e-30."""
_RARE: Final = 0.02
_GAPS: Final = GAPS.encode()
_HEADER_OR_COMMENT: Final = re.compile(rb"(?m)^[>;][^\r\n]*")
_NOT_LETTERS: Final = bytes(set(range(256)) - set(range(65, 91)) - set(range(97, 123)))
_RESIDUES_AND_GAPS: Final = bytes([*range(65, 91), *range(97, 123)]) + _GAPS + b"*"
_LOWER: Final = bytes(range(97, 123))
_SAMPLE_RECORDS: Final = 1_000
_SAMPLE_TOKENS: Final = 1 << 20
_TRANSLATE: Final = "Translate it first"
_ANNOTATED: Final = frozenset({"genbank", "embl"})
"""Formats whose records are genomes with annotated genes."""
_GIVE_PROTEINS: Final = (
    "Give the proteins of its genes instead, as FASTA (.faa) or GenPept (.gp): thdpack reads the "
    "sequences of records, not the /translation of their features"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherLetters:
    """The reason to refuse an input. An option can allow such an input.

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


def refuse_other_letters(source: Source, head: bytes, allowed: Allowed) -> None:
    """Refuse a FASTA source whose first records are nucleotides or an alignment.

    Args:
        head: first bytes of the file as stored, before decompression.
    Raises:
        InputError: the first records look like nucleotides, or like an alignment.
    """
    if allowed.everything or not head:
        return
    text = _plain(source, head)
    if text is not None and _looks_like_proteins(text):
        return
    sample, whole = _sample(source)
    said = None if allowed.nucleotides else _nucleotides(_counts(sample), whole)
    if said is None and not allowed.alignment:
        said = _alignment(_rows(sample, whole))
    if said is not None:
        raise InputError(said.refusal, source=source.url)


def refuse_other_tokens(source: Source, block: RecordBlock, allowed: Allowed) -> None:
    """Refuse a source of any format whose first block holds nucleotides or an alignment.

    Raises:
        InputError: the first records look like nucleotides, or like an alignment.
    """
    said = None if allowed.everything else other_tokens(source, block, allowed)
    if said is not None:
        raise InputError(said.refusal, source=source.url)


def other_tokens(source: Source, block: RecordBlock, allowed: Allowed) -> OtherLetters | None:
    """Judge a source of any format by its first block. Return the reason to refuse it, or None."""
    import numpy as np

    ends = block.ends[:_SAMPLE_RECORDS].tolist()
    tokens = block.tokens[: min(ends[-1], _SAMPLE_TOKENS)]
    times = np.bincount(tokens, minlength=len(ESM2))
    gaps = [ESM2.id(gap) for gap in GAPS]
    counts = {letter: int(times[ESM2.id(letter)]) for letter in _NUCLEOTIDES.decode()}
    counts["all"] = int(tokens.size - times[gaps].sum())
    said = None if allowed.nucleotides else _nucleotides(counts, tokens.size == block.tokens.size)
    if said is None and not allowed.alignment and times[gaps].any():
        texts = [
            "".join(ESM2.tokens[token][:1] for token in block.tokens[begin:end]).encode()
            for begin, end in zip([0, *ends], ends, strict=False)
            if end <= tokens.size
        ]
        said = _alignment(texts)
    if said is not None and source.format in _ANNOTATED and said.remedy == _TRANSLATE:
        return replace(said, remedy=_GIVE_PROTEINS)
    return said


def _plain(source: Source, head: bytes) -> bytes | None:
    """Return the text of a file's first bytes; None if an archive's first bytes are not enough."""
    if source.compression == "none":
        return _unix(head)
    if source.compression != "gzip":
        return None  # the first block of another archive may be longer than `head`
    try:
        return _unix(zlib.decompressobj(31).decompress(head, 4 * LOOK_BYTES))
    except zlib.error:  # the task that reads the archive raises an error
        return None


def _unix(text: bytes) -> bytes:
    """Replace each carriage return by a line feed."""
    return text.replace(b"\r", b"\n")


def _looks_like_proteins(text: bytes) -> bool:
    """Whether the first bytes of a FASTA text are certainly proteins."""
    lines = _HEADER_OR_COMMENT.sub(b"", text)
    letters = lines.translate(None, _NOT_LETTERS).upper()
    others = len(letters.translate(None, _NUCLEOTIDES))
    return others > 0.2 * len(letters) and not any(gap in lines for gap in _GAPS)


def _sample(source: Source) -> tuple[bytes, bool]:
    """Return the first SAMPLE_BYTES of a source's text, and whether this is the whole text.

    If the source cannot be read, return no text. The task that reads the source raises the error.
    """
    found = bytearray()
    try:
        with (
            open_input(source.url, until=SAMPLE_BYTES) as raw,
            closing(
                decompressed(cast(BinaryIO, io.BufferedReader(cast(Any, raw))), source.compression)
            ) as stream,
        ):
            while len(found) <= SAMPLE_BYTES and (more := stream.read(1 << 16)):
                found += more
    except (ArchiveNeedsError, InputError, OSError, ValueError):
        return b"", False
    except broken_archive_errors():
        return b"", False
    return _unix(bytes(found[:SAMPLE_BYTES])), len(found) <= SAMPLE_BYTES


def _counts(text: bytes) -> dict[str, int]:
    """Return the number of times that each nucleotide's letter occurs; key `all` has the total."""
    letters = _HEADER_OR_COMMENT.sub(b"", text).translate(None, _NOT_LETTERS).upper()
    counts = {chr(letter): letters.count(bytes([letter])) for letter in _NUCLEOTIDES}
    return {**counts, "all": len(letters)}


def _rows(text: bytes, whole: bool) -> list[bytes]:
    """Return the residues, gaps included, of each record whose text is complete."""
    bodies = re.split(rb"(?m)^>[^\r\n]*", text)[1:]
    return [b"".join(body.split()) for body in (bodies if whole else bodies[:-1])]


def _nucleotides(counts: Mapping[str, int], whole: bool) -> OtherLetters | None:
    """Return a reason to refuse an input if nearly all letters are nucleotides.

    At least three of A, C, G and T (or U) must also be common. Repeats such as poly-A are therefore
    not refused. Instead, half of the letters may be N, as at the start of a chromosome.
    """
    letters = counts["all"]
    known = sum(counts[letter] for letter in _NUCLEOTIDES.decode())
    enough = _SHARE * letters if letters >= _ENOUGH_LETTERS else letters
    if letters < _FEWEST_LETTERS or known < enough:
        return None
    bases = (counts["A"], counts["C"], counts["G"], counts["T"] + counts["U"])
    if sum(base > _RARE * letters for base in bases) < 3 and counts["N"] < letters / 2:
        return None
    some = f"its {letters:,}" if whole else f"the first {letters:,}"
    share = f"{100 * known // letters} % of {some} letters are A, C, G, T, U or N"
    return OtherLetters(
        looks=f"looks like nucleotides ({share})",
        expected="proteins",
        remedy=_TRANSLATE,
        option="--allow-nucleotides",
    )


def _alignment(rows: Sequence[bytes]) -> OtherLetters | None:
    """Return a reason to refuse if all records are equally long and half or more have gaps.

    In the A3M format, lower-case letters are insertions, which do not count in the length.
    """
    gapped = sum(any(gap in row for gap in _GAPS) for row in rows)
    if len(rows) < 2 or 2 * gapped < len(rows):
        return None
    others = sum(len(row.translate(None, _RESIDUES_AND_GAPS)) for row in rows)
    if others > (1 - _SHARE) * sum(map(len, rows)):  # for example dates, which have hyphens
        return None
    columns = {len(row) for row in rows}
    if len(columns) > 1:
        columns = {len(row.translate(None, _LOWER + b".")) for row in rows}
    if len(columns) > 1:
        return None
    gaps = f"{gapped:,} of the first {len(rows):,} records have gaps"
    return OtherLetters(
        looks=f"looks like an alignment ({gaps}, and all have {columns.pop():,} columns)",
        expected="unaligned proteins",
        remedy="Remove the gaps (- and .) first",
        option="--allow-alignment",
    )
