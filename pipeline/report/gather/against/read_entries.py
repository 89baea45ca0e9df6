"""Read the files of `--against`, in any format that a build reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import polars as pl
import pyarrow as pa

from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.build.build_plan import plan
from pipeline.build.map_stage.partition_records import record_blocks
from pipeline.build.named_files.named_file import without_mmseqs
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import Reporter
from pipeline.inputs.record_block import RecordBlock
from pipeline.report.gather.fasta import read_inputs
from pipeline.report.gather.read_sequences import map_task
from pipeline.report.gather.records.overlaps import Entries


def read_entries(name: str, progress: Reporter) -> Entries:
    """Read the hash of each sequence of a file.

    Args:
        name: path or URL of the file, perhaps after `mmseqs:`.
    Raises:
        InputError: the file cannot be read, or its content is invalid.
    """
    _, records = read_inputs(_options(name), progress)
    # convert to the byte order of records/, because joined blocks have that of the machine
    stored = np.ascontiguousarray(records.hashes, dtype=HASH)
    hashes = pa.Array.from_buffers(
        pa.binary(HASH.itemsize), stored.size, [None, pa.py_buffer(stored)]
    )
    rows = pl.Series("hash", pl.from_arrow(hashes)).to_frame()
    return Entries(name, rows.group_by("hash").agg(pl.len().alias("entries")))


def entry_blocks(name: str) -> Iterator[RecordBlock]:
    """Yield the sequences of a file, in input order.

    Raises:
        InputError: the file cannot be read, or its content is invalid.
    """
    options = _options(name)
    planned = plan(options)
    for index in range(len(planned.ranges)):
        task = map_task(planned, index, options.of_dataset)
        with closing(record_blocks(task, lambda _: None)) as blocks:
            for block, _ in blocks:
                yield block


def _options(name: str) -> PreprocessOptions:
    inputs = (without_mmseqs(name)[0],)
    return PreprocessOptions(inputs=inputs, out="", allow_nucleotides=True, allow_alignment=True)
