"""Find kept records that are similar to a sequence of `--exclude mmseqs:FILE`.

The records are the queries, and the file's sequences are the targets. Therefore the results for one
record depend on the file only, not on other records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pipeline.build.exclusion.entries import (
    OrdinalEntries,
    SequenceEntries,
    read_entries,
    write_entries,
)
from pipeline.build.mmseqs.binary import find_mmseqs, mmseqs_version
from pipeline.build.mmseqs.run import scratch_folder
from pipeline.build.search_stage.kept_records import fasta_entries, write_kept_records
from pipeline.build.search_stage.search_tasks import SearchTask
from pipeline.build.search_stage.similar_pairs import Search, similar_pairs
from pipeline.build.task_results import PreparedFile
from pipeline.build.tasks import OnBytes
from schemas.errors import BuildError


def search_exclusions(task: SearchTask, on_bytes: OnBytes) -> PreparedFile:
    """Run MMseqs2, and write the similar records as a work file. The result names this file.

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
        queries, targets = scratch / "records", scratch / "entries"
        count = write_kept_records(task.job, task.partitions, queries, on_bytes)
        with targets.open("wb") as file:
            rows = np.arange(len(entries))
            # the separator after each entry is not part of it
            ends = np.stack((entries.starts[:-1], entries.starts[1:] - 1), axis=1).ravel()
            file.writelines(fasta_entries(rows, entries.text, ends, 2 * rows))
        search = Search(
            mmseqs=mmseqs,
            queries=queries,
            targets=targets,
            option=f"--exclude {task.file.name}",
            scratch=scratch,
            identity=task.file.min_identity,
            coverage=task.file.min_coverage,
            threads=task.threads,
        )
        similar = _similar_records(similar_pairs(search) if count else (), entries)
    return replace(prepared, file=write_entries(similar, task.work, task.output))


def _similar_records(
    pairs: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]], entries: SequenceEntries
) -> OrdinalEntries:
    """Return the records that are similar to an entry.

    If a record is similar to several entries, its match is the entry with the smallest id.

    Args:
        pairs: similar pairs in blocks: the ordinals of records (their numbers among all input
            records), and the indices of entries.
    """
    names = [entries.id(entry) for entry in range(len(entries))]
    ids = sorted(set(names))
    index = {name: i for i, name in enumerate(ids)}
    id_of_entry = np.array([index[name] for name in names], dtype=np.int64)
    ordinals, matches = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for queries, targets in pairs:
        ordinals.append(queries)
        matches.append(id_of_entry[targets])
    ordinal, match = np.concatenate(ordinals), np.concatenate(matches)
    order = np.lexsort((match, ordinal))
    distinct, first = np.unique(ordinal[order], return_index=True)
    return OrdinalEntries(
        ids=np.frombuffer(b"".join(ids), dtype=np.uint8),
        id_edges=np.cumsum([0, *map(len, ids)], dtype=np.int64),
        ordinal=distinct,
        match=match[order][first],
    )
