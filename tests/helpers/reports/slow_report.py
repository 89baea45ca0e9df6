"""Recompute every number of a report from FASTA, with Biopython and simple loops.

This module and slow_packing.py, which has the numbers of splits and packings, import constant
tables of the pipeline, but none of its functions.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import xxhash

from pipeline.planning.throughput import GPU, THROUGHPUT
from pipeline.report.gather.composition import BACKGROUND_SOURCE
from schemas.models import PUBLISHED_RUNS
from schemas.vocabulary import ESM2
from tests.helpers.oracles.oracle import biopython, titles
from tests.helpers.oracles.slow_split import split_of_hash
from tests.helpers.oracles.slow_windows import slow_start
from tests.helpers.reports.slow_counts import header_counts, of_title

STATUSES = ("kept", "invalid", "too_short", "too_long", "filtered", "excluded", "duplicate")


@dataclass
class Record:
    """One FASTA record and its status.

    tokens: token ids without special tokens, one byte each.
    title: whole header.
    original: ordinal of the first identical record, if this record is a duplicate; else None.
    """

    ordinal: int
    source: str
    id: str
    tokens: bytes
    title: str = ""
    status: str = "kept"
    original: int | None = None

    @property
    def residues(self) -> int:
        return len(self.tokens)

    def split(self, options: dict[str, Any]) -> str:
        first_piece = self.tokens[: options["max_seq_len"] - 2]
        return split_of_hash(xxhash.xxh3_128_digest(first_piece), options["split"])


def read(inputs: list[Path], text: dict[str, bytes], options: dict[str, Any]) -> list[Record]:
    """Return all records with their status.

    Args:
        text: decompressed content of each input, by file name.
    """
    records: list[Record] = []
    first_of: dict[bytes, int] = {}
    for path in inputs:
        parsed = biopython(text[path.name]) or []
        for (name, tokens), title in zip(parsed, titles(text[path.name]), strict=True):
            record = Record(len(records), path.name, name, bytes(tokens), title)
            record.status = _status(record, options)
            if record.status == "kept" and options["dedup"] == "exact":
                first = first_of.setdefault(record.tokens, record.ordinal)
                if first != record.ordinal:
                    record.status, record.original = "duplicate", first
            records.append(record)
    return records


def _status(record: Record, options: dict[str, Any]) -> str:
    if options["on_invalid"] == "skip" and ESM2.unk in record.tokens:
        return "invalid"
    if record.residues < options["min_residues"]:
        return "too_short"
    if options["long"] == "drop" and record.residues > options["max_seq_len"] - 2:
        return "too_long"
    return "kept"


def pieces(record: Record, options: dict[str, Any]) -> list[bytes]:
    """Return the residues of each sequence that a kept record becomes, according to --long."""
    most = options["max_seq_len"] - 2
    if options["long"] == "split":
        return [record.tokens[i : i + most] for i in range(0, record.residues, most)]
    start = 0
    if options["long"] == "crop":
        digest = xxhash.xxh3_128_digest(record.tokens)
        start = slow_start(digest, record.ordinal, record.residues, most, seed=options["seed"])
    return [record.tokens[start : start + most]]


def expected(
    records: list[Record], inputs: list[Path], options: dict[str, Any], *, over: str
) -> dict[str, Any]:
    """Return the numbers of a report, except the numbers about splits and packing.

    Args:
        over: source of the composition: "buckets" for the report of a dataset, "input" for the
            report of FASTA files.
    """
    kept = [record for record in records if record.status == "kept"]
    cut = [(record, piece) for record in kept for piece in pieces(record, options)]
    letters = (
        Counter(token for _, piece in cut for token in piece)
        if over == "buckets"
        else Counter(token for record in records for token in record.tokens)
    )
    train = [len(piece) + 2 for record, piece in cut if record.split(options) == "train"]
    return {
        "records": len(records),
        "by_status": _by_status(records),
        "inputs": [
            _input(path, [record for record in records if record.source == path.name])
            for path in inputs
        ],
        "cropped_copies": _cropped_copies(kept, options),
        "residues_in": sum(record.residues for record in records),
        "residues_kept": sum(len(piece) for _, piece in cut),
        "tokens": sum(len(piece) + 2 for _, piece in cut),
        "lengths": _lengths(records, kept, options),
        "composition": _composition(records, letters, over),
        "budget": _budget(sum(train)),
        "longest": [
            _note(record, records)
            for record in sorted(records, key=lambda r: (-r.residues, r.ordinal))[:10]
        ],
        "repeated": _repeated(records),
        "duplicates": _duplicates(records, inputs),
        "headers": _headers(records) if over == "buckets" else None,
    }


def _headers(records: list[Record]) -> dict[str, Any]:
    return header_counts(
        [of_title(record.title, record.residues, record.status == "kept") for record in records]
    )


def _cropped_copies(kept: list[Record], options: dict[str, Any]) -> int:
    most = options["max_seq_len"] - 2
    first_pieces = [record.tokens[:most] for record in kept if record.residues >= most]
    return len(first_pieces) - len(set(first_pieces)) if options["long"] == "truncate" else 0


def _by_status(records: list[Record]) -> dict[str, int]:
    return {status: sum(record.status == status for record in records) for status in STATUSES}


def _input(path: Path, records: list[Record]) -> dict[str, Any]:
    residues = sum(record.residues for record in records)
    return {
        "name": path.name,
        "bytes": path.stat().st_size,
        "records": len(records),
        "residues": residues,
        "by_status": _by_status(records),
    }


def _lengths(records: list[Record], kept: list[Record], options: dict[str, Any]) -> dict[str, Any]:
    lengths = sorted(record.residues for record in records)
    crop = options["max_seq_len"] - 2
    longer = [record.residues for record in kept if record.residues > crop]
    return {
        "records": len(lengths),
        "shortest": lengths[0],
        "longest": lengths[-1],
        "mean": sum(lengths) / len(lengths),
        "percentiles": {
            str(p): lengths[max(1, ceil(len(lengths) * p / 100)) - 1]
            for p in (1, 5, 25, 50, 75, 95, 99)
        },
        "crop": crop,
        "cropped": len(longer),
        "residues_cropped": sum(longer) - crop * len(longer)
        if options["long"] in ("truncate", "crop")
        else 0,
    }


def _composition(records: list[Record], letters: Counter[int], over: str) -> dict[str, Any]:
    unknown = [record.tokens.count(ESM2.unk) for record in records]
    return {
        "over": over,
        "letters": {
            token: letters[i] for i, token in enumerate(ESM2.tokens) if i in ESM2.in_sequence
        },
        "background_source": BACKGROUND_SOURCE,
        "unknown_records": sum(count > 0 for count in unknown),
        "unknown_residues": sum(unknown),
    }


def _budget(tokens: int) -> dict[str, Any]:
    rows = []
    for row in THROUGHPUT:
        run = PUBLISHED_RUNS[row.preset].steps * PUBLISHED_RUNS[row.preset].tokens_per_step
        seconds = {
            "epoch_gpu_hours": tokens / row.tokens_per_second / 3600,
            "run_gpu_hours": run / row.tokens_per_second / 3600,
        }
        names = {
            "preset": row.preset,
            "precision": row.precision,
            "tokens_per_second": row.tokens_per_second,
            "source": row.source,
        }
        rows.append(
            {**names, "run_tokens": run, "epochs": run / tokens, **seconds} if tokens else {}
        )
    return {"tokens": tokens, "gpu": GPU, "rows": rows if tokens else []}


def _note(record: Record, records: list[Record]) -> dict[str, Any]:
    times = 1 + sum(other.original == record.ordinal for other in records)
    names = {"ordinal": record.ordinal, "id": record.id, "source": record.source}
    return {**names, "residues": record.residues, "status": record.status, "times": times}


def _repeated(records: list[Record]) -> list[dict[str, Any]]:
    copies = Counter(record.original for record in records if record.original is not None)
    most = sorted(copies, key=lambda ordinal: (-copies[ordinal], ordinal))[:10]
    return [_note(records[ordinal], records) for ordinal in most]


def _duplicates(records: list[Record], inputs: list[Path]) -> list[dict[str, Any]]:
    pairs = Counter(
        (record.source, records[record.original].source)
        for record in records
        if record.original is not None
    )
    order = [path.name for path in inputs]
    found = sorted(pairs, key=lambda pair: (order.index(pair[0]), order.index(pair[1])))
    return [
        {"source": source, "original": original, "records": pairs[source, original]}
        for source, original in found
    ]
