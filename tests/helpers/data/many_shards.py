"""The dataset that the fixture `many_shards` builds, and similar datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import preprocess

RECORDS: Final = 1000
LONGEST: Final = 120
"""Maximum number of residues of a record. With few and short sequences in a bucket, a training step
on a CPU is quick."""
CAPACITY: Final = 256
MAX_SEQ_LEN: Final = 128
PARTITION_BYTES: Final = 2000
"""Size of a partition in bytes, so small that about 215 buckets fill about 20 shards."""
SPLIT: Final = "train=0.98,valid=0.01,test=0.01"
OPTIONS: Final = (
    *("--capacity", str(CAPACITY), "--max-seq-len", str(MAX_SEQ_LEN)),
    *("--split", SPLIT),
)


def build_many_shards(folder: Path, *options: str, records: int = RECORDS) -> Path:
    """Build a dataset of small buckets and many shards in a folder, and return its folder."""
    source = folder / "made.fasta"
    source.write_bytes(fasta(made_records(records, longest=LONGEST)))
    return preprocess(
        source, folder / "dataset", *OPTIONS, *options, partition_bytes=PARTITION_BYTES
    )
