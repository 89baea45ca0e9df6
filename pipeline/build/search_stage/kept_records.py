"""Write a FASTA file of the records that the map stage kept, for MMseqs2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.build.reduce_stage.deduplicate import KEPT
from pipeline.build.reduce_stage.record_rows import RecordRows
from pipeline.build.reduce_stage.spilled_records import RecordRun, SpilledRecords
from pipeline.build.tasks import Job, OnBytes, ReduceTask
from schemas.vocabulary import ESM2


def write_kept_records(
    job: Job,
    partitions: int,
    path: Path,
    on_bytes: OnBytes,
    name: Callable[[RecordRows], NDArray[Any]] = lambda rows: rows.ordinal,
) -> int:
    """Write each distinct sequence of the kept records once; return the number of sequences.

    By default, the header of a sequence is the ordinal of its first record: the record's number
    among all input records. Equal sequences are in the same partition, so memory holds the hashes
    of only one partition. Sequences are sorted by partition, then by ordinal, so every run writes
    the same bytes.

    Args:
        on_bytes: called with the number of residues written since the last call.
        name: function that returns the numbers, integer[N], that become the headers of the
            sequences of N records.
    Raises:
        DamagedSpillError: a spill is damaged.
    """
    written = 0
    with path.open("wb") as file:
        for partition in range(partitions):
            task = ReduceTask(job=job, partition=partition, partitions=partitions)
            for run, first in _first_records(SpilledRecords(task)):
                tokens, edges = run.tokens()
                file.writelines(fasta_entries(name(run.rows)[first], tokens, edges, first))
                on_bytes(int(run.rows.residues[first].sum()))
                written += first.size
    return written


def fasta_entries(
    names: NDArray[Any],
    tokens: NDArray[np.uint8],
    edges: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> Iterator[bytes]:
    """Yield a FASTA entry for each row. Tokens that are not letters become X.

    Args:
        names: integer[M], number that becomes the header of each entry.
        tokens: uint8[T], tokens of all rows.
        edges: int64[…], edges in `tokens`. Row i is tokens[edges[i]:edges[i + 1]].
        rows: int64[M], rows to write.
    """
    letters = _LETTERS[tokens].tobytes()
    begin, end = edges[rows].tolist(), edges[rows + 1].tolist()
    for name, first, last in zip(names.tolist(), begin, end, strict=True):
        yield b">%d\n%b\n" % (name, letters[first:last])


def _first_records(spilled: SpilledRecords) -> Iterator[tuple[RecordRun, NDArray[np.int64]]]:
    """Yield each run of a partition, with the indices of the kept records that are the first with
    their sequence, int64[M]."""
    seen = np.empty(0, dtype="S16")
    for run in spilled.runs():
        kept = np.flatnonzero(run.rows.status == KEPT)
        hashes = np.ascontiguousarray(run.rows.hash[kept]).view("S16")
        found, first = np.unique(hashes, return_index=True)
        new = ~np.isin(found, seen)
        yield run, kept[np.sort(first[new])]
        if spilled.large:
            seen = np.union1d(seen, found)


def _letters() -> NDArray[np.uint8]:
    table = np.full(256, ord("X"), dtype=np.uint8)
    for letter, token in ESM2.letters.items():
        if letter.isalpha():
            table[token] = ord(letter)
    return table


_LETTERS = _letters()
