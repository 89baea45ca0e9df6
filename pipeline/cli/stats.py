"""What `thdpack stats` is asked for. Imports nothing but tyro, which the command line has anyway."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Optional

import tyro

from pipeline.build.options import PreprocessOptions

_INPUTS_HELP = "A dataset's folder or URL, two to compare, or whatever `thdpack preprocess` reads."
_BUILD_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(PreprocessOptions)}


@dataclass(frozen=True, kw_only=True, slots=True)
class StatsOptions:
    """What a dataset or raw FASTA holds: records and their fates, lengths, composition, buckets, padding, GPU-hours.

    A dataset is reported from its manifest and records/ alone; raw sequences are read once, and their packing is predicted. Two datasets, or a
    dataset and sequences, are compared. Examples: thdpack stats data/uniref50 --html report.html
    thdpack stats uniref50.fasta.gz --capacity 65536
    """

    inputs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="DATASET|INPUT", help=_INPUTS_HELP),
    ]
    json: Annotated[Optional[str], tyro.conf.arg(metavar="[FILE]")] = None  # noqa: UP045
    """Write the report as JSON (docs/statistics.md); without FILE to standard output, and nothing else."""
    csv: Annotated[Optional[str], tyro.conf.arg(metavar="DIR")] = None  # noqa: UP045
    """Write each table as a CSV file in this folder."""
    html: Annotated[Optional[str], tyro.conf.arg(metavar="FILE")] = None  # noqa: UP045
    """Write one self-contained HTML page."""
    read_tokens: bool = False
    """Datasets on local disks: also read all shards, count letters and buckets anew, and refuse where the manifest says otherwise."""
    capacity: int = _BUILD_DEFAULTS["capacity"]
    """Raw sequences only: tokens per bucket of the predicted build."""
    max_seq_len: int = _BUILD_DEFAULTS["max_seq_len"]
    """Raw sequences only: longest sequence in tokens of the predicted build."""
    long: Literal["truncate", "split", "drop"] = _BUILD_DEFAULTS["long"]
    """Raw sequences only: what the predicted build does with longer records."""


def with_json_file(arguments: list[str]) -> list[str]:
    """`--json` with nothing behind it means standard output, which tyro cannot express."""
    told = []
    for argument, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        told += (
            [argument, "-"] if argument == "--json" and following.startswith("--") else [argument]
        )
    return told


def run_stats(options: StatsOptions) -> int:
    """Do it; the exit code.

    Raises:
        ThdpackError: an input or a dataset cannot be read, or a file cannot be written.
    """
    from pipeline.report.command import Outputs, UsageError, stats

    if not options.inputs:
        taken = (
            f" (--json took {options.json} for its file: name that last, or the file too)"
            if options.json not in (None, "-")
            else ""
        )
        print(
            f"thdpack: nothing to report on: name a dataset, two to compare, or sequence files{taken}",
            file=sys.stderr,
        )
        return 2
    try:
        asked = PreprocessOptions(
            inputs=options.inputs,
            out="",
            capacity=options.capacity,
            max_seq_len=options.max_seq_len,
            long=options.long,
        )
    except ValueError as error:
        print(f"thdpack: {error}", file=sys.stderr)
        return 2
    try:
        stats(
            asked,
            Outputs(json=options.json, csv=options.csv, html=options.html),
            read_tokens=options.read_tokens,
        )
    except UsageError as error:
        print(f"thdpack: {error}", file=sys.stderr)
        return 2
    return 0
