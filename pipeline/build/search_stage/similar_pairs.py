"""Find similar sequences in two FASTA files, with MMseqs2.

`--exclude mmseqs:FILE` and `thdpack stats --against mmseqs:FILE` use the settings of this module.
These settings are given explicitly, because their defaults may differ between versions of MMseqs2.
All other settings keep their defaults. With `--split 1`, MMseqs2 does not divide the targets
according to the machine's memory. With any number of threads, MMseqs2 writes the same rows, but
their order may differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.mmseqs.run import run_mmseqs
from pipeline.build.named_files.exclude.result_table import Layout, result_batches
from pipeline.build.named_files.named_file import MMSEQS
from pipeline.inputs.source import Source

_COLUMNS: Final = ("query", "target", "fident", "qcov", "tcov")
_SETTINGS: Final = (
    *("--dbtype", "1"),  # proteins, even if all letters are A, C, G or T
    *("--format-output", ",".join(_COLUMNS)),
    *("--split", "1"),
    *("-s", "5.7"),
    *("-e", "0.001"),
    *("--max-seqs", "300"),
    *("-v", "2"),
)
_NO_KMER: Final = "No k-mer could be extracted for the database"
"""MMseqs2 prints this text and fails if it masks or skips all residues of all targets."""
_ROUNDING: Final = 0.001
"""MMseqs2 prints identities with three decimals."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """A search with MMseqs2.

    mmseqs: path of the binary
    queries, targets: FASTA files whose ids are whole numbers
    option: option that named the targets, with its value; errors show it
    scratch: folder for temporary files
    identity, coverage: minimum values, from 0 to 1; the coverage of either sequence suffices
    threads: number of threads of MMseqs2
    """

    mmseqs: str
    queries: Path
    targets: Path
    option: str
    scratch: Path
    identity: float
    coverage: float
    threads: int


def similar_pairs(search: Search) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the ids of the queries and of the targets of similar pairs, in blocks.

    The results for one query depend on the targets only, not on other queries. For each query,
    MMseqs2 aligns at most 300 targets. The prefilter of MMseqs2 chooses these targets by comparing
    k-mers.

    Raises:
        BuildError: MMseqs2 failed, or cannot search any of the targets.
    """
    found = search.scratch / "found.tsv"
    found.touch()
    least = max(0.0, search.identity - _ROUNDING)
    own = ("--min-seq-id", f"{least:.3f}", "--threads", str(search.threads))
    files = (search.queries, search.targets, found, search.scratch / "tmp")
    known = {_NO_KMER: _no_kmer(search.option)}
    run_mmseqs(search.mmseqs, ["easy-search", *files, *_SETTINGS, *own], search.scratch, known)
    table = Source(
        url=str(found),
        name=found.name,
        bytes=found.stat().st_size,
        fingerprint="",
        format="tsv",
        compression="none",
        piece=1,
    )
    for batch in result_batches(table, Layout(names=_COLUMNS, skipped=0)):
        identity, *coverage = (batch.column(name).to_numpy() for name in _COLUMNS[2:])
        enough = (identity >= search.identity) & (np.maximum(*coverage) >= search.coverage)
        yield _integers(batch.column("query"))[enough], _integers(batch.column("target"))[enough]


def _no_kmer(option: str) -> str:
    return (
        f"{option}: MMseqs2 cannot search any sequence of this file, because all of them are "
        "shorter than 14 residues or of low complexity, such as AAAAAA; omit the prefix "
        f"{MMSEQS}, so that thdpack itself looks for these sequences"
    )


def _integers(column: pa.Array) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = column.cast(pa.large_string()).cast(pa.int64()).to_numpy()
    return numbers
