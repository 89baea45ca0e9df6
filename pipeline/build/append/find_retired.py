"""Find the records that `thdpack append --retire` retires.

A retired record is listed in retired/. Its sequences stay in the shards. Steps:

1. Read the list of ids, and write it to a work file.
2. Scan records/ of the current generation for these ids, in parallel tasks
   (`pipeline/build/retire/`).
3. Leave out records that an earlier generation has retired.

Cost: each file of records/ is read once, about 50 bytes per record. A task holds one row group in
memory. The process that starts the tasks needs about 50 bytes for each matching record, and 100
bytes for each id in the list.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import bytes_and_edges, take_bytes
from pipeline.build.exclusion.entries import write_entries
from pipeline.build.generations.read_records import task_groups
from pipeline.build.named_files.exclude.id_list import listed_names
from pipeline.build.phases import Phases
from pipeline.build.retire.retire_counts import RetireCounts
from pipeline.build.retire.retire_task import Matches, RetireTask, find_listed
from pipeline.build.retire.retired_files import retired_ordinals
from pipeline.inputs.decompress import detect
from pipeline.inputs.find import PIECE_BYTES, size_and_fingerprint
from pipeline.inputs.source import Source
from pipeline.storage.folder import Folder
from pipeline.storage.open_folder import folder_of
from pipeline.storage.open_input import input_errors, open_input
from schemas.manifest import Manifest
from schemas.text.redact import without_credentials

_SHOWN: Final = 5
"""A message names at most this many of the ids that match no record."""
_HEAD_BYTES: Final = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Retirement:
    """The N records that a generation retires, and facts for the user.

    ordinal: int64[N], ascending
    id: large_binary[N]
    """

    ordinal: NDArray[np.int64]
    id: pa.Array
    counts: RetireCounts

    @property
    def digest(self) -> str:
        """Digest of the records; empty if there are none."""
        if not self.ordinal.size:
            return ""
        values, edges = bytes_and_edges(self.id)
        found = xxhash.xxh3_128(self.ordinal.tobytes())
        found.update(edges.tobytes())
        found.update(np.ascontiguousarray(values[: edges[-1]]).data)
        return found.hexdigest()


def find_retired(
    url: str, existing: Manifest, before: int, work: Folder, phases: Phases
) -> Retirement:
    """Find the records whose id, accession or entry name is in a list of ids, in parallel.

    Args:
        url: path or URL of the list.
        existing: manifest of the current generation.
        before: only records with a smaller ordinal may be retired; see `records_before`.
        work: folder for the list's work file.
    Raises:
        InputError: the list cannot be read.
        DatasetError: a file of records/ or retired/ is missing or damaged.
        BuildError: the work file cannot be written.
    """

    def run(tasks: list[RetireTask], size: int) -> list[Matches]:
        return phases.run("find retired records", tasks, size)

    return _found(url, existing, before, phases.out, work, phases.report.note, run)


def count_retired(
    url: str, existing: Manifest, out: Folder, note: Callable[[str], None]
) -> RetireCounts:
    """Count the records that an append would retire, in this process. No file of the dataset is
    written.

    Args:
        url: path or URL of the list of ids.
        existing: manifest of the current generation.
        out: the dataset's folder.
        note: function that shows a message to the user.
    Raises:
        InputError: the list cannot be read.
        DatasetError: a file of records/ or retired/ is missing or damaged.
    """

    def run(tasks: list[RetireTask], _: int) -> list[Matches]:
        return [find_listed(task, lambda _: None) for task in tasks]

    _, before = records_before(existing, ())
    with tempfile.TemporaryDirectory(prefix="thdpack-retire-") as work:
        return _found(url, existing, before, out, folder_of(work), note, run).counts


def _found(
    url: str,
    existing: Manifest,
    before: int,
    out: Folder,
    work: Folder,
    note: Callable[[str], None],
    run: Callable[[list[RetireTask], int], list[Matches]],
) -> Retirement:
    """Find the records of a list of ids; see `find_retired`.

    Args:
        run: function that runs tasks which read a number of bytes, and returns their results.
    """
    earlier = retired_ordinals(out, existing)
    entries, number = listed_names(_source(url), first_words=True)
    if not number:
        note(f"--retire {without_credentials(url)} lists no id")
    ids = write_entries(entries, work, f"retired-{entries.content_hash()[:16]}.arrow")
    tasks = [
        RetireTask(records=group, ids=ids, before=before, out=out, work=work)
        for group in task_groups(existing.records if before else ())
    ]
    size = sum(entry.bytes for task in tasks for entry in task.records)
    found = Matches.together(run(tasks, size) if tasks else [])
    order = np.argsort(found.ordinal)
    new = order[~np.isin(found.ordinal[order], earlier, assume_unique=True)]
    unknown = np.setdiff1d(np.arange(entries.match.size), found.listed, assume_unique=True)
    return Retirement(
        ordinal=found.ordinal[new],
        id=take_bytes(found.id, new),
        counts=RetireCounts(
            records=new.size,
            kept=int(np.count_nonzero(found.kept[new])),
            earlier=order.size - new.size,
            unknown=unknown.size,
            unknown_ids=tuple(
                entries.id(i).decode("utf-8", "backslashreplace") for i in unknown[:_SHOWN]
            ),
        ),
    )


def records_before(existing: Manifest, known: Iterable[str]) -> tuple[int, int]:
    """Return two numbers: the last generation whose records an append may retire (0 if there is
    none), and the total number of records that the dataset had at that generation.

    An append retires records of earlier generations, not those of its own inputs. If the dataset
    already has all inputs, an earlier run of the same command may have appended them. The append
    then retires only records that are older than the last generation that added one of its inputs.
    Otherwise a repeated command would retire the records that its first run appended.

    Args:
        known: names of the inputs of this append if the dataset already has all of them; empty if
            the append has new inputs, or none.
    """
    names = set(known)
    entries = [(entry.inputs, entry.records) for entry in existing.history]
    if not names:
        return existing.generation, sum(existing.records_by_status.values())
    last = max(i for i, entry in enumerate(existing.inputs) if entry.name in names)
    number = sum(inputs <= last for inputs, _ in entries)
    return number, entries[number - 1][1] if number else 0


def _source(url: str) -> Source:
    """Return a list of ids as an input. Its compression is detected from its first bytes.

    Raises:
        InputError: the file cannot be read.
    """
    with input_errors(url):
        size, fingerprint = size_and_fingerprint(url)
    with open_input(url, until=_HEAD_BYTES) as raw:
        compression = detect(raw.read(_HEAD_BYTES))
    return Source(
        url=url,
        name=url,
        bytes=size,
        fingerprint=fingerprint,
        format="",
        compression=compression,
        piece=PIECE_BYTES,
    )
