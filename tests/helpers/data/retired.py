"""Inputs with accessions and entry names, and the records that a dataset lists as retired."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.helpers.data.corpus import fasta, made_records, read_manifest, read_records

LIST = """\
# removed in the new release
P00000
N4_HUMAN  renamed

sp|P00008|N8_HUMAN\tseveral words
; also a comment
NP_000001.2
NP_000005
UniRef50_Q00002
Q00006
record-3
record-3
no-such-id
"""
"""Accessions, entry names and ids, with and without versions."""


def write_named_inputs(folder: Path, count: int, *, records: int = 60) -> list[Path]:
    """Write files. Record i has the same names in all files, and another sequence in each.

    Some records have UniProt headers, some have versions, and some have only an id.
    """
    made = [residues for _, residues in made_records(count * records, longest=400)]
    paths = []
    for number in range(count):
        lines = [(_header(i), made[number * records + i] or "MK") for i in range(records)]
        paths.append(folder / f"{number}.fasta")
        paths[-1].write_bytes(fasta(lines))
    return paths


def _header(i: int) -> str:
    kind = i % 4
    if kind == 0:
        return f"sp|P{i:05d}|N{i}_HUMAN Protein {i} OS=Homo sapiens OX=9606 PE=1 SV=1"
    if kind == 1:
        return f"NP_{i:06d}.2 protein {i} [Mus musculus]"
    if kind == 2:
        return f"UniRef50_Q{i:05d} Cluster: protein {i} n=3 Tax=root TaxID=1 RepID=Q{i}_MOUSE"
    return f"record-{i} n=3"


def read_retired(dataset: Path) -> dict[int, list[dict[str, Any]]]:
    """Return the rows of retired/ that each generation wrote, by number of the generation."""
    manifest = read_manifest(dataset)
    builds = [*(entry.build for entry in manifest.history), manifest.build]
    return {
        builds.index(Path(entry.name).stem) + 1: pq.read_table(dataset / entry.name).to_pylist()
        for entry in manifest.retired
    }


def slow_matches(dataset: Path, generation: int, listed: str) -> list[dict[str, Any]]:
    """Return the records of a generation whose names are in a list, by a plain loop.

    Args:
        listed: text of the list of ids.
    """
    manifest = read_manifest(dataset)
    counts = [entry.records for entry in manifest.history]
    before = [*counts, sum(manifest.records_by_status.values())][generation - 1]
    lines = [line.split() for line in listed.splitlines()]
    ids = {words[0] for words in lines if words and words[0][0] not in "#;"}
    return [
        {"ordinal": row["ordinal"], "id": row["id"]}
        for row in read_records(dataset)
        if row["ordinal"] < before and ids & {row["id"], row["accession"], row["name"]}
    ]
