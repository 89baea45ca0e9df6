"""Search the kept records for sequences similar to those of `--exclude mmseqs:FILE`.

The records are the queries, and the file's sequences are the targets. Therefore the results for one
record depend on the file only, not on other records. All settings that have an effect are given
here, because defaults differ between versions of MMseqs2. `--split 1` keeps MMseqs2 from dividing
the targets according to the machine's memory. MMseqs2 writes the same rows with any number of
threads, but in another order.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.exclusion.entries import (
    OrdinalEntries,
    SequenceEntries,
    read_entries,
    write_entries,
)
from pipeline.build.mmseqs.binary import find_mmseqs, mmseqs_version
from pipeline.build.mmseqs.run import run_mmseqs, scratch_folder
from pipeline.build.named_files.exclude.result_table import Layout, result_batches
from pipeline.build.search_stage.kept_records import fasta_entries, write_kept_records
from pipeline.build.search_stage.search_task import SearchTask
from pipeline.build.task_results import PreparedFile
from pipeline.build.tasks import OnBytes
from pipeline.inputs.source import Source
from schemas.errors import BuildError

_COLUMNS: Final = ("query", "target", "fident", "qcov", "tcov")
_SETTINGS: Final = (
    *("--dbtype", "1"),  # proteins, even if all letters are those of nucleotides
    *("--format-output", ",".join(_COLUMNS)),
    *("--split", "1"),
    *("-s", "5.7"),
    *("-e", "0.001"),
    *("--max-seqs", "300"),
    *("-v", "2"),
)
_ROUNDING: Final = 0.001
"""MMseqs2 prints identities with three decimals."""


def search_exclusions(task: SearchTask, on_bytes: OnBytes) -> PreparedFile:
    """Run MMseqs2, and write the similar records as a work file, which the result names.

    Raises:
        BuildError: MMseqs2 failed, or this machine has another version than the build's plan.
        DamagedSpillError: a work file is damaged.
    """
    mmseqs = find_mmseqs("exclude")
    if mmseqs_version(mmseqs) != task.file.mmseqs_version:
        raise BuildError(
            f"{mmseqs} is version {mmseqs_version(mmseqs)}, but the build was planned with "
            f"{task.file.mmseqs_version}: install the same version on all machines"
        )
    prepared = task.job.prepared[task.index]
    entries = read_entries(task.work, prepared.file)
    assert isinstance(entries, SequenceEntries)
    with scratch_folder(task.work, task.name) as scratch:
        queries, targets, found = (scratch / name for name in ("records", "entries", "found.tsv"))
        count = write_kept_records(task.job, task.partitions, queries, on_bytes)
        with targets.open("wb") as file:
            rows = np.arange(len(entries))
            # the separator after each entry is not part of it
            ends = np.stack((entries.starts[:-1], entries.starts[1:] - 1), axis=1).ravel()
            file.writelines(fasta_entries(rows, entries.text, ends, 2 * rows))
        found.touch()
        if count:
            least = max(0.0, task.file.min_identity - _ROUNDING)
            own = ("--min-seq-id", f"{least:.3f}", "--threads", str(task.threads))
            files = (queries, targets, found, scratch / "tmp")
            run_mmseqs(mmseqs, ["easy-search", *files, *_SETTINGS, *own], scratch)
        similar = _similar_records(found, entries, task)
    return replace(prepared, file=write_entries(similar, task.work, task.similar))


def _similar_records(found: Path, entries: SequenceEntries, task: SearchTask) -> OrdinalEntries:
    """Return the records of MMseqs2's result table that are similar enough to an entry.

    Of several entries, the one with the smallest id is the match.
    """
    names = [entries.id(entry) for entry in range(len(entries))]
    ids = sorted(set(names))
    index = {name: i for i, name in enumerate(ids)}
    id_of_entry = np.array([index[name] for name in names], dtype=np.int64)
    ordinals, matches = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
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
        enough = (identity >= task.file.min_identity) & (
            np.maximum(*coverage) >= task.file.min_coverage
        )
        ordinals.append(_integers(batch.column("query"))[enough])
        matches.append(id_of_entry[_integers(batch.column("target"))[enough]])
    ordinal, match = np.concatenate(ordinals), np.concatenate(matches)
    order = np.lexsort((match, ordinal))
    distinct, first = np.unique(ordinal[order], return_index=True)
    return OrdinalEntries(
        ids=np.frombuffer(b"".join(ids), dtype=np.uint8),
        id_edges=np.cumsum([0, *map(len, ids)], dtype=np.int64),
        ordinal=distinct,
        match=match[order][first],
    )


def _integers(column: pa.Array) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = column.cast(pa.large_string()).cast(pa.int64()).to_numpy()
    return numbers
