"""Make random FASTA; read a dataset with slow, simple functions that use no code of pipeline/."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.manifest import Manifest
from schemas.vocabulary import ESM2

LETTERS = "LAGVSERTIDPKQNFYMHWC"


def made_records(count: int, *, seed: int = 0, longest: int = 700) -> list[tuple[str, str]]:
    """Return (header, residues) of random proteins.

    Some sequences are duplicates, some are empty, some are in lower case, and some contain unknown
    letters.
    """
    rng = np.random.default_rng(seed)
    records: list[tuple[str, str]] = []
    for i in range(count):
        kind = rng.random()
        if records and kind < 0.1:
            residues = records[int(rng.integers(len(records)))][1]
        elif kind < 0.11:
            residues = ""
        else:
            residues = "".join(rng.choice(list(LETTERS), int(rng.integers(1, longest))))
            residues = (
                residues.lower()
                if kind < 0.2
                else residues[:9] + "J1" + residues[9:]
                if kind < 0.25
                else residues
            )
        records.append((f"made{i} protein {i}", residues))
    return records


def with_headers(records: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Replace most headers with headers of several databases, with about 30 organisms.

    An organism may have several names. Some headers state only the organism, some state nothing.
    """
    rng = np.random.default_rng(0)
    found = []
    for i, (header, residues) in enumerate(records):
        taxon, fragment = int(rng.integers(1, 24)), rng.choice(["", " (Fragment)"])
        uniprot = f"OS=Made organism {taxon} OX={taxon} PE={rng.integers(1, 6)} SV=1"
        headers = (
            f"sp|P{i:05d}|A{i}_MADE protein{fragment} {uniprot}",
            f"tr|Q{i:05d}|B{i}_MADE protein{fragment} {uniprot.replace('Made', 'Renamed')}",
            f"UniRef50_P{i:05d} protein{fragment} n=7 Tax=é {taxon} TaxID={taxon}",
            f"WP_{i:09d}.1 protein [Named only {taxon % 9}]",
            header,
        )
        found.append((headers[rng.integers(5)], residues))
    return found


def fasta(records: list[tuple[str, str]], *, width: int = 60) -> bytes:
    """Return the records as FASTA with wrapped lines."""
    lines = []
    for header, residues in records:
        lines.append(f">{header}")
        lines += [residues[i : i + width] for i in range(0, len(residues), width)]
    return ("\n".join(lines) + "\n").encode()


def read_manifest(dataset: Path) -> Manifest:
    return Manifest.from_json((dataset / "manifest.json").read_bytes(), where=str(dataset))


def read_records(dataset: Path) -> list[dict[str, Any]]:
    """Return all rows of the dataset's folder records/, sorted by ordinal."""
    rows = [
        row
        for entry in read_manifest(dataset).records
        for row in pq.read_table(dataset / entry.name).to_pylist()
    ]
    return sorted(rows, key=lambda row: int(row["ordinal"]))


def read_buckets(dataset: Path, variant: int = 0) -> list[dict[str, Any]]:
    """Return each bucket of a variant as a dictionary with its columns, split, shard and row."""
    found = []
    for split, entries in read_manifest(dataset).shards_of(variant).items():
        for entry in entries:
            rows = pa.ipc.open_file(dataset / entry.name).read_all().to_pylist()
            found += [
                {**row, "split": split, "shard": entry.name, "row": i} for i, row in enumerate(rows)
            ]
    return found


def sequences_in(bucket: dict[str, Any]) -> list[tuple[int, int, str]]:
    """Return (ordinal, start, residues) of each sequence in a bucket. Unknown letters are `?`.

    ordinal: number of the record.
    start: position of the first residue in the record, counted from 0.
    """
    found = []
    edges = bucket["cu_seqlens"]
    for i in range(bucket["num_seqs"]):
        span = bucket["input_ids"][edges[i] : edges[i + 1]]
        assert span[0] == ESM2.cls
        body = span[1 : span.index(ESM2.eos)]
        assert all(token == ESM2.pad for token in span[len(body) + 2 :])
        found.append(
            (
                bucket["record"][i],
                bucket["start"][i],
                "".join(ESM2.tokens[t] for t in body).replace("<unk>", "?"),
            )
        )
    return found


def digest(dataset: Path) -> dict[str, str]:
    """Return the sha256 of every file of a dataset, by name."""
    return {
        str(path.relative_to(dataset)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(dataset.rglob("*"))
        if path.is_file() and ".build" not in path.parts
    }


def as_read(residues: str) -> str:
    """Return residues as `sequences_in` returns them: in upper case, without a final `*`, and with
    `?` for unknown letters.
    """
    return "".join(
        letter if letter in ESM2.letters else "?" for letter in residues.upper().removesuffix("*")
    )
