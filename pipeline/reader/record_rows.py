"""Read columns of a file of records/."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from pipeline.reader.mapped_shard import checked_content
from pipeline.storage.open_folder import folder_of
from schemas.manifest_entries import RecordsEntry


def read_records(url: str | Path, entry: RecordsEntry, columns: Sequence[str]) -> pa.Table:
    """Return columns of a file of records/: one row for each record, sorted by ordinal.

    Args:
        url: folder or URL of the dataset.
        entry: an element of `manifest.records`.
        columns: names of columns; docs/reference/format.md lists them.
    Raises:
        DatasetError: the file is missing or damaged, or cannot be read.
    """
    import pyarrow.parquet as pq  # imported here, because reading shards does not need it

    content = checked_content(folder_of(url), entry)
    # pyarrow's `read_table` would import pandas, if it is installed, which takes 0.3 s
    with pq.ParquetFile(pa.BufferReader(content)) as file:
        return file.read(columns=list(columns), use_threads=False)
