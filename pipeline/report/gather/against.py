"""Read the files of `--against`, whose sequences are looked up in a dataset."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from pipeline.build.arrays.sequence_hashes import HASH
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress import Reporter
from pipeline.report.gather.fasta import read_inputs
from pipeline.report.gather.records.overlaps import Entries


def read_entries(name: str, progress: Reporter) -> Entries:
    """Read a file in any format that a build reads.

    Raises:
        InputError: the file cannot be read or breaks a rule.
    """
    options = PreprocessOptions(
        inputs=(name,), out="", allow_nucleotides=True, allow_alignment=True
    )
    _, records = read_inputs(options, progress)
    # bytes as in records/: joining the blocks of a file has changed their order
    stored = np.ascontiguousarray(records.hashes, dtype=HASH)
    hashes = pa.Array.from_buffers(
        pa.binary(HASH.itemsize), stored.size, [None, pa.py_buffer(stored)]
    )
    rows = pl.Series("hash", pl.from_arrow(hashes)).to_frame()
    return Entries(name, rows.group_by("hash").agg(pl.len().alias("entries")))
