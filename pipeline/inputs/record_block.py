"""A block of tokenized records, which the readers of all input formats yield."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.inputs.residues import encode, letter_classes
from schemas.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordBlock:
    """R tokenized records of one input, in input order.

    The arrays are views of buffers that the next block reuses.

    tokens: uint8[T], residues of all records, without <cls> and <eos>; record i is
        tokens[ends[i-1]:ends[i]]
    ends:    int64[R], index after each record's last token
    ids:     uint8[…], UTF-8 of all ids; id i is ids[id_ends[i-1]:id_ends[i]]
    id_ends: int64[R], index after each id's last byte
    descriptions:     uint8[…], rest of each header, after the id and blanks
    description_ends: int64[R], index after each description's last byte
    offset:  int64[R], byte of the decompressed input at which the record starts; in tables and
        SeqIO formats, the number of earlier records
    unknown: int64[R], number of letters that became <unk>
    """

    tokens: NDArray[np.uint8]
    ends: NDArray[np.int64]
    ids: NDArray[np.uint8]
    id_ends: NDArray[np.int64]
    descriptions: NDArray[np.uint8]
    description_ends: NDArray[np.int64]
    offset: NDArray[np.int64]
    unknown: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.ends.size)

    @property
    def id_edges(self) -> NDArray[np.int64]:
        """Edges of the ids, int64[R + 1]: id i is ids[edges[i]:edges[i + 1]]."""
        return np.concatenate(([0], self.id_ends))

    @property
    def description_edges(self) -> NDArray[np.int64]:
        """Edges of the descriptions, int64[R + 1]."""
        return np.concatenate(([0], self.description_ends))

    def id(self, record: int) -> str:
        """Return the id of a record of this block."""
        begin = int(self.id_ends[record - 1]) if record else 0
        return bytes(self.ids[begin : self.id_ends[record]]).decode("utf-8", "backslashreplace")


Blocks = Generator[tuple[RecordBlock, list[str]], None, None]
"""Iterator over pairs of a block and a list of content hashes.

The last list has one hash for each piece (part of equal size) of the input's range; all other lists
are empty. For Parquet and Arrow, the last list is empty, too.

Callers must close the iterator, because a stream that was not read to its end keeps its threads
running and its file open.
"""


def identifier(name: object) -> str:
    """Return an id from a table or Biopython, cut at its first blank as in a FASTA header."""
    words = str(name).split(None, 1) if name is not None else []
    return words[0] if words else ""


def block_of_texts(
    ids: list[str],
    residues: list[str],
    first_number: int,
    vocabulary: Vocabulary,
    *,
    descriptions: list[str] | None = None,
) -> RecordBlock:
    """Return a RecordBlock of texts.

    Args:
        first_number: position of the first record in its file, counted from 0.
        descriptions: rest of each header; by default, all are empty.
    """
    classes = letter_classes(vocabulary)
    encoded = [encode(text, classes, vocabulary.unk) for text in residues]
    names = [name.encode("utf-8", "backslashreplace") for name in ids]
    rests = [text.encode("utf-8", "backslashreplace") for text in descriptions or [""] * len(ids)]
    return RecordBlock(
        tokens=np.concatenate([np.empty(0, dtype=np.uint8), *(tokens for tokens, _ in encoded)]),
        ends=_ends([tokens.size for tokens, _ in encoded]),
        ids=np.frombuffer(b"".join(names), dtype=np.uint8),
        id_ends=_ends([len(name) for name in names]),
        descriptions=np.frombuffer(b"".join(rests), dtype=np.uint8),
        description_ends=_ends([len(rest) for rest in rests]),
        offset=np.arange(first_number, first_number + len(residues), dtype=np.int64),
        unknown=np.array([unknown for _, unknown in encoded], dtype=np.int64),
    )


def empty_block() -> RecordBlock:
    """Return a block without records."""
    numbers, values = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint8)
    return RecordBlock(
        tokens=values,
        ends=numbers,
        ids=values,
        id_ends=numbers,
        descriptions=values,
        description_ends=numbers,
        offset=numbers,
        unknown=numbers,
    )


def _ends(sizes: list[int]) -> NDArray[np.int64]:
    return np.cumsum(np.array(sizes, dtype=np.int64), dtype=np.int64)
