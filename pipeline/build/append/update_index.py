"""Bring the hash index of a dataset up to date before records are appended. The index consists of
runs: files of sorted hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pipeline.build.hash_index.index_runs import IndexRun, check_runs
from pipeline.build.hash_index.index_state import IndexState, read_state, write_state
from pipeline.build.hash_index.index_task import IndexTask
from pipeline.build.phases import Phases
from pipeline.storage.folder import Folder
from schemas.manifest import Manifest
from schemas.manifest_entries import RecordsEntry

MOST_ROWS: Final = 4_000_000
"""Maximum number of records in a run, except if one records/ file has more. Sorting a run takes
about 200 MB of memory."""
ROWS_APART: Final = 1_000_000
"""Maximum number of records in a run if all records are from one build. The arrays of a task are
then so small that the next task of the worker reuses their memory (`keep_memory`). To touch new
memory would take half of the time of a task."""
MOST_SMALL: Final = 8
"""Maximum number of runs with less than half of MOST_ROWS, without runs that are apart (see
`IndexRun`). If there are more, they are merged."""


def update_index(
    manifest: Manifest, out: Folder, work: Folder, phases: Phases
) -> tuple[IndexRun, ...]:
    """Add the records/ files that the index does not cover yet; return all runs.

    Raises:
        DatasetError: a records/ file is missing or damaged.
        DamagedIndexError: a run is damaged.
        BuildError: a run cannot be written.
    """
    state = read_state(out, manifest.records)
    check_runs(out, state.runs)
    missing = manifest.records[len(state.covered) :]
    if not missing:
        return state.runs
    one_build = len({entry.name.partition("-")[0] for entry in missing}) == 1  # records/<build>-…
    groups = _groups(missing, ROWS_APART if one_build else MOST_ROWS)
    tasks = [IndexTask(records=tuple(group), out=out, work=work) for group in groups]
    rows = sum(entry.rows for entry in missing)
    written = phases.run("index earlier records", tasks, 16 * rows)
    apart = one_build and len(groups) > 1
    runs = [*state.runs, *(replace(run, apart=apart) for run in written)]
    small = [run for run in runs if run.rows < MOST_ROWS // 2 and not run.apart]
    merged: list[IndexRun] = []
    if len(small) > MOST_SMALL:
        merge = IndexTask(records=(), runs=tuple(small), out=out, work=work)
        merged = phases.run("merge small runs of the index", [merge], 0)
        runs = [run for run in runs if run not in small] + merged
    covered = tuple(entry.xxh3_128 for entry in manifest.records)
    write_state(out, IndexState(covered=covered, runs=tuple(runs)))
    if merged:
        for run in small:  # not earlier, because the old index.json named these runs
            out.remove(run.name)
    return tuple(runs)


def _groups(entries: Sequence[RecordsEntry], most: int) -> list[list[RecordsEntry]]:
    """Divide records/ files into groups with about the same number of rows, at most `most`."""
    rows = sum(entry.rows for entry in entries)
    target = rows / -(-rows // most) if rows else 1
    groups: list[list[RecordsEntry]] = [[]]
    size = 0
    for entry in entries:
        if groups[-1] and size + entry.rows / 2 > target * len(groups):
            groups.append([])
        groups[-1].append(entry)
        size += entry.rows
    return groups
