"""Read the schema of records/ from the end of one Parquet file."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.storage.folder import Folder, Part
from schemas.errors import DatasetError
from schemas.manifest import Manifest

_FIRST_READ: Final = 64 << 10
"""Bytes that are read first. They hold the whole footer of an ordinary file."""
_LENGTH_AND_MAGIC: Final = 8
"""A Parquet file ends with the length of its footer (4 bytes) and the letters PAR1."""


def stored_schema(folder: Folder, manifest: Manifest) -> pa.Schema:
    """Return the schema of the files of records/, which all have the same columns.

    Only the end of the first file is read.

    Raises:
        DatasetError: the file is missing or damaged, or the store does not answer.
    """
    if not manifest.records:
        raise DatasetError(f"{folder.where()}: the manifest names no file of records/; build again")
    entry = manifest.records[0]
    where = folder.where(entry.name)
    try:
        tail = _tail(folder, entry.name, entry.bytes, _FIRST_READ)
        footer = int.from_bytes(tail[-_LENGTH_AND_MAGIC:][:4], "little") + _LENGTH_AND_MAGIC
        if footer > len(tail):
            tail = _tail(folder, entry.name, entry.bytes, footer)
        # positions in a footer count from the end of the file, so the tail alone is readable
        return pq.read_schema(pa.BufferReader(tail))
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(
            f"{where}: cannot be read ({error}); run thdpack verify on the dataset"
        ) from error


def _tail(folder: Folder, name: str, size: int, length: int) -> bytes:
    [part] = folder.parts([Part(name, max(0, size - length), size)])
    return bytes(part)
