"""Files of `--exclude`, and the records that a dataset lists as excluded."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.data.corpus import fasta, read_records
from tests.helpers.oracles.slow_exclusion import Excluded, Found

HEADERS = ("sp|P{0}|N{0}_HUMAN a", "UniRef50_P{0} b n=1", "plain{0}")


def write_files(folder: Path, excluded: Excluded) -> list[str]:
    """Write the files of `--exclude`; return their paths."""
    contents = {name: fasta(entries) for name, entries in excluded.fastas.items()}
    contents |= {
        name: "\n".join(["# ids", "", "; from a search", *ids]).encode()
        for name, ids in excluded.lists.items()
    }
    for name, rows in excluded.tables.items():
        lines = ["\t".join(map(str, (*row[:3], 9, 0, 0, *row[3:], 1e-5, 50))) for row in rows]
        contents[name] = ("\n".join(lines) + "\n").encode()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [str(folder / name) for name in contents]


def rows_of(dataset: Path) -> list[tuple[str, Found | None]]:
    """Return the status and the match of each record of a dataset."""
    return [
        (
            row["status"],
            None
            if row["exclusion"] is None
            else (row["exclusion"], row["match"], row["match_file"]),
        )
        for row in read_records(dataset)
    ]
