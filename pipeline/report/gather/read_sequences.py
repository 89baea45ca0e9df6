"""Read raw sequences with the build's own parser, in every format that `thdpack preprocess` reads.

Several threads read ranges (parts) of a large uncompressed file at the same time. The threads run
in parallel, because the parser's compiled code releases the GIL. A thread reads its range in blocks
of records, and needs memory for two blocks of about 24 MiB of text. Each record needs 50 bytes and
the bytes of its id.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.hash_kernel import count_values
from pipeline.build.arrays.sequence_hashes import HASH, first_piece_hashes, sequence_hashes
from pipeline.build.build_plan import Plan
from pipeline.build.map_stage.partition_records import record_blocks, status_of
from pipeline.build.options import DatasetOptions
from pipeline.build.progress.reporter import Reporter
from pipeline.build.tasks import MapTask, OnBytes
from pipeline.executors.processes import cores
from pipeline.inputs.composition.block_tokens import other_tokens
from pipeline.inputs.record_block import RecordBlock
from pipeline.inputs.source import NOTHING_ELSE, Source
from pipeline.storage.open_folder import folder_of
from schemas.text.redact import without_credentials

HEADERS_TRIED: Final = 1 << 20
"""Size of the sample of headers, in bytes. These headers are written in the format of records/, to
predict the size of records/."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRecords:
    """N records in input order, from one block, from one range of an input, or from all inputs.

    residues: int64[N], number of residues of each record
    status: int8[N], index into STATUS_CODES for each record
    source: int32[N], number of the input that holds each record
    hashes: HASH[N], hash of all residues of each record
    cropped: HASH[N], hash of those residues of each record that fit into max_seq_len
    ids: a pair for each block. The first item has the bytes of all ids of the block, end to end.
      The second item has the end of each id in these bytes, int64[records of the block]
    headers: id and description of the first records, about HEADERS_TRIED bytes in all
    letters: int64[256], number of occurrences of each token id
    unknown_records: number of records that contain <unk>
    unknown_residues: number of occurrences of <unk>
    warnings: sentences about inputs that a build would refuse
    """

    residues: NDArray[np.int64]
    status: NDArray[np.int8]
    source: NDArray[np.int32]
    hashes: NDArray[np.void]
    cropped: NDArray[np.void]
    ids: list[tuple[bytes, NDArray[np.int64]]]
    headers: list[tuple[bytes, bytes]]
    letters: NDArray[np.int64]
    unknown_records: int
    unknown_residues: int
    warnings: tuple[str, ...] = ()

    def id(self, ordinal: int) -> str:
        """Return the id of a record, in the form that records/ would contain."""
        for text, ends in self.ids:
            if ordinal < ends.size:
                begin = int(ends[ordinal - 1]) if ordinal else 0
                return text[begin : int(ends[ordinal])].decode("utf-8", "backslashreplace")
            ordinal -= ends.size
        raise AssertionError("no such record")


_NOTHING: Final = ReadRecords(
    residues=np.empty(0, dtype=np.int64),
    status=np.empty(0, dtype=np.int8),
    source=np.empty(0, dtype=np.int32),
    hashes=np.empty(0, dtype=HASH),
    cropped=np.empty(0, dtype=HASH),
    ids=[],
    headers=[],
    letters=np.zeros(256, dtype=np.int64),
    unknown_records=0,
    unknown_residues=0,
)


def read_records(planned: Plan, options: DatasetOptions, progress: Reporter) -> ReadRecords:
    """Read all records of all inputs, in input order. Warn about inputs that a build would refuse.

    Raises:
        InputError: an input cannot be read, or its content is invalid.
    """
    lock, stopped = threading.Lock(), threading.Event()

    def on_bytes(count: int) -> None:
        if stopped.is_set():
            raise InterruptedError("another range failed, or the user interrupted the command")
        with lock:
            progress.advance(count)

    def read(index: int) -> ReadRecords:
        task = map_task(planned, index, options)
        return _read_range(task, planned.ranges[index][0], on_bytes)

    with ThreadPoolExecutor(cores()) as threads:
        try:
            found = list(threads.map(read, range(len(planned.ranges))))
        finally:
            stopped.set()  # after an error, stop the other threads early
    first_warnings: dict[int, str] = {}  # by input, because several ranges may repeat a warning
    for (source, _, _), part in zip(planned.ranges, found, strict=True):
        for warning in part.warnings:
            first_warnings.setdefault(source, warning)
    for warning in first_warnings.values():
        progress.note(f"warning: {warning}")
    return replace(_joined(found), warnings=tuple(first_warnings.values()))


def map_task(planned: Plan, index: int, options: DatasetOptions) -> MapTask:
    """Return the task that would read a range of the inputs in a build."""
    source, begin, end = planned.ranges[index]
    return MapTask(
        index=index,
        source=planned.sources[source],
        begin=begin,
        end=end,
        partitions=1,
        options=options,
        work=folder_of(Path()),
    )


def _read_range(task: MapTask, index: int, on_bytes: OnBytes) -> ReadRecords:
    """Read the records of one range of an input. `index` is the number of the input."""
    found: list[ReadRecords] = []
    warnings: tuple[str, ...] = ()
    with closing(record_blocks(task, on_bytes)) as blocks:
        for block, _ in blocks:
            if len(block) and not warnings:
                first = task.begin == 0 and not found
                said = other_tokens(task.source, block, NOTHING_ELSE, first=first)
                if said is not None:
                    warnings = (f"{_shown(task.source)}: {said.warning}",)
            found.append(_read_block(block, index, task.options))
    return replace(_joined(found), warnings=warnings)


def _shown(source: Source) -> str:
    return "standard input" if source.name == "-" else without_credentials(source.url)


def _read_block(block: RecordBlock, source: int, options: DatasetOptions) -> ReadRecords:
    hashes = sequence_hashes(block.tokens, block.ends)
    letters = np.zeros(256, dtype=np.int64)
    count_values(block.tokens, letters)
    return ReadRecords(
        residues=np.diff(block.ends, prepend=0),
        status=status_of(block, options),
        source=np.full(block.ends.size, source, dtype=np.int32),
        hashes=hashes,
        cropped=first_piece_hashes(block.tokens, block.ends, hashes, options.longest_piece),
        ids=[(block.ids.tobytes(), block.id_ends.copy())],
        headers=_first_headers(block),
        letters=letters,
        unknown_records=int(np.count_nonzero(block.unknown)),
        unknown_residues=int(block.unknown.sum()),
    )


def _first_headers(block: RecordBlock) -> list[tuple[bytes, bytes]]:
    """Return id and description of the first records of a block."""
    edges = (
        zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        for ends in (block.id_edges, block.description_edges)
    )
    return _sample(
        (block.ids[a:b].tobytes(), block.descriptions[c:d].tobytes())
        for (a, b), (c, d) in zip(*edges, strict=True)
    )


def _sample(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the first headers, about HEADERS_TRIED bytes.

    A second call on the joined results of several blocks returns the first headers of all blocks.
    The division into blocks therefore does not matter.
    """
    found: list[tuple[bytes, bytes]] = []
    size = 0
    for header in headers:
        if size >= HEADERS_TRIED:
            break
        found.append(header)
        size += len(header[0]) + len(header[1])
    return found


def _joined(found: list[ReadRecords]) -> ReadRecords:
    """Concatenate the records of several blocks or ranges."""
    parts = [_NOTHING, *found]
    return ReadRecords(
        residues=np.concatenate([part.residues for part in parts]),
        status=np.concatenate([part.status for part in parts]),
        source=np.concatenate([part.source for part in parts]),
        hashes=np.concatenate([part.hashes for part in parts]),
        cropped=np.concatenate([part.cropped for part in parts]),
        ids=[ids for part in parts for ids in part.ids],
        headers=_sample(header for part in parts for header in part.headers),
        letters=np.sum([part.letters for part in parts], axis=0),
        unknown_records=sum(part.unknown_records for part in parts),
        unknown_residues=sum(part.unknown_residues for part in parts),
    )
