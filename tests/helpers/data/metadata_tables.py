"""Random tables for --metadata, and a slow join of their rows with records."""

from __future__ import annotations

import csv
import gzip
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.helpers.data.corpus import made_records
from tests.helpers.oracles.slow_headers import stated

Row = dict[str, Any]
FAMILIES = (
    "sp|P{0:05d}|N{0}_HUMAN Protein (Fragment) OS=Homo sapiens OX=9606 GN=G{0} PE=1 SV=1",
    "UniRef50_A{0:05d}   Protein n={0} Tax=Homo sapiens TaxID=9606 RepID=A{0}_HUMAN",
    "NP_{0:06d}.1 a kinase, partial [Homo sapiens]",
    "plain{0}",
)
TYPES = {
    "Organism (ID)": "int",
    "Protein names": "string",
    "length of motif": "int",
    "reviewed": "bool",
    "score": "float",
    "version": "string",
}
SCHEMA = pa.schema(
    [
        ("Entry", pa.string()),
        ("score", pa.float64()),
        ("Protein names", pa.string()),
        ("Organism (ID)", pa.int32()),
        ("reviewed", pa.bool_()),
        ("length of motif", pa.int64()),
        ("version", pa.string()),
    ]
)


def headed_records(count: int) -> list[tuple[str, str]]:
    """Return (header, residues) of random proteins. Their headers follow several conventions."""
    made = made_records(count, seed=3, longest=300)
    return [
        (FAMILIES[i % len(FAMILIES)].format(i), residues) for i, (_, residues) in enumerate(made)
    ]


def made_table(records: Sequence[tuple[str, str]]) -> list[Row]:
    """Return rows for most of the records' accessions, some of their ids, and 50 other proteins."""
    draw = random.Random(1)
    keys = [f"other{i}" for i in range(50)]
    for header, _ in records:
        identifier, _, description = header.partition(" ")
        accession = stated(identifier.encode(), description.encode()).accession
        by_id, by_accession = draw.random() < 0.3, draw.random() < 0.6
        if by_id:
            keys.append(identifier)
        if accession is not None and by_accession and accession.decode() not in keys:
            keys.append(accession.decode())
    rows = []
    for i, key in enumerate(keys):
        row = {
            "Entry": key,
            "score": draw.choice((0.5, -1e-9, 3.0, math.pi, None)),
            "Protein names": draw.choice(('the "big" one', "5\"-x, a'b", "NA", "γ", None)),
            "Organism (ID)": draw.choice((9606, 10090, None)),
            "reviewed": draw.choice((True, False, None)),
            "length of motif": i * 10**15,
            "version": draw.choice(("1", "2", "2b")),
        }
        rows.append(row)
    return rows


def joined(header: str, table: Sequence[Row]) -> Row | None:
    """Return the row for a record's accession, else the row for its id, else None."""
    identifier, _, description = header.partition(" ")
    accession = stated(identifier.encode(), description.strip(" ").encode()).accession
    by_key = {row["Entry"]: row for row in table}
    own = by_key.get(accession.decode()) if accession is not None else None
    return own or by_key.get(identifier)


def write_table(path: Path, table: Sequence[Row]) -> Path:
    """Write a table in the format of the name's first suffix; without a suffix, as Parquet."""
    path.parent.mkdir(exist_ok=True)
    kind = path.suffixes[0] if path.suffix else ".parquet"
    if kind in (".parquet", ".arrow"):
        found = pa.Table.from_pylist(list(table), schema=SCHEMA)
        if kind == ".parquet":
            pq.write_table(found, path, row_group_size=37)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
                writer.write_table(found)
        return path
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        if kind == ".csv":
            writer = csv.writer(file)
            writer.writerow(SCHEMA.names)
            writer.writerows([as_text(row[name]) for name in SCHEMA.names] for row in table)
        else:  # as in UniProt's files, no value is quoted
            for line in (
                SCHEMA.names,
                *([as_text(value) for value in row.values()] for row in table),
            ):
                file.write("\t".join(line) + "\n")
    return path


def as_text(value: object) -> str:
    return "" if value is None else str(value)
