"""Read the ids and lengths of all records of a dataset."""

from __future__ import annotations

from pipeline.reader.record_rows import read_records
from schemas.manifest import Manifest


def record_names(url: str, manifest: Manifest) -> dict[int, tuple[str, int]]:
    """Return id and number of residues of each record, by ordinal.

    Args:
        url: folder or URL of the dataset.
    Raises:
        DatasetError: a file of records/ is missing or damaged, or cannot be read.
    """
    found = {}
    for entry in manifest.records:
        table = read_records(url, entry, ("ordinal", "id", "residues"))
        for ordinal, name, residues in zip(
            *(column.to_pylist() for column in table.columns), strict=True
        ):
            found[ordinal] = (name, residues)
    return found
