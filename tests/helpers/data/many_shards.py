"""Numbers of the dataset that the fixture `many_shards` builds, for the tests that check them."""

from __future__ import annotations

from typing import Final

RECORDS: Final = 1000
LONGEST: Final = 120
"""Residues. Few and short sequences in a bucket keep a training step on a CPU short."""
CAPACITY: Final = 256
MAX_SEQ_LEN: Final = 128
PARTITION_BYTES: Final = 2000
"""About 215 buckets in about 20 shards."""
OPTIONS: Final = ("--capacity", str(CAPACITY), "--max-seq-len", str(MAX_SEQ_LEN))
