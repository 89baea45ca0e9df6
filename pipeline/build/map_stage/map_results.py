"""The outcome of the map stage: a file that lists the spills (the output files of the map tasks).

Every process that runs later tasks reads the file once. The file has about 140 bytes for each map
task: 1 MB for 7,000 tasks that read about 2 billion records.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import xxhash

from pipeline.build.build_plan import Plan
from pipeline.build.generations.parent import Parent
from pipeline.build.map_stage.empty_columns import empty_column_warnings
from pipeline.build.map_stage.hash_task import HashTask
from pipeline.build.map_stage.listed_ids import unmatched_ids
from pipeline.build.map_stage.missing_ids import missing_id_warnings
from pipeline.build.map_stage.unknown_letters import unknown_letter_warnings
from pipeline.build.options import DatasetOptions
from pipeline.build.task_results import HashResult, MapResult, PreparedFile
from pipeline.build.tasks import Job, MapTask
from pipeline.inputs.content_hash import content_hash
from pipeline.inputs.error_location import no_residue
from pipeline.inputs.named.ignore import with_ignore
from pipeline.inputs.source import Source
from pipeline.storage.folder import Folder
from pipeline.storage.signed_json import read_signed, signed
from schemas import __version__
from schemas.errors import BuildError, NoResidueError
from schemas.manifest_entries import InputEntry
from schemas.text.redact import without_credentials
from schemas.untrusted_json import BuildName, WorkName


@dataclass(frozen=True, kw_only=True, slots=True)
class Spill:
    """Output of one map task.

    name: name of the file in the work folder
    source: index of the input that the task read
    first_ordinal: position of the spill's first record among the records of all inputs
    """

    name: WorkName
    source: int
    first_ordinal: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MapOutcome:
    """Sum of all map tasks' results.

    build: digest of inputs, options and version of thdpack; see `build_digest`
    residues: number of residues in all inputs
    notes: lines about ids in lists of --exclude that no record has
    without_ids: line about tables without a column of ids, which the map stage has already shown
    """

    build: BuildName
    inputs: tuple[InputEntry, ...]
    spills: tuple[Spill, ...]
    residues: int
    notes: tuple[str, ...] = ()
    without_ids: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs, as they appear in records/."""
        return tuple(entry.name for entry in self.inputs)

    def save(self, job: Job, *, durable: bool = False) -> None:
        """Write the outcome to the file that the job's tasks read.

        Args:
            durable: True to sync the file, so that it survives a power cut. This is needed if
                other machines run tasks later.
        """
        with job.work.written(job.mapped, durable=durable) as file:
            file.write(signed(asdict(self)))


def add_up_map_results(
    options: DatasetOptions,
    planned: Plan,
    maps: Sequence[MapTask],
    hashes: Sequence[HashTask],
    results: Sequence[MapResult | HashResult],
    prepared: Sequence[PreparedFile] = (),
    parent: Parent | None = None,
) -> MapOutcome:
    """Add up the results of the map stage's tasks.

    Args:
        results: results of all map tasks in order, then of all hash tasks.
        prepared: files that options name.
        parent: the generation to which the build appends; None for a new dataset.
    Raises:
        InputError: an input holds no residue.
        NoResidueError: none of the inputs holds a residue.
        DamagedSpillError: the work file of a list of ids is missing or damaged.
    """
    sources = planned.sources
    records, residues = [0] * len(sources), [0] * len(sources)
    spills = []
    ordinal = parent.records if parent else 0
    for (s, _, _), task, result in zip(
        planned.ranges, maps, map_results_among(results), strict=True
    ):
        spills.append(Spill(name=task.spill, source=s, first_ordinal=ordinal))
        ordinal += result.records
        records[s] += result.records
        residues[s] += result.residues
    for i, source in enumerate(sources):
        if residues[i] == 0:
            error = with_ignore(no_residue(source), source.url, found=source.found)
            if any(residues):
                raise error
            raise NoResidueError(
                error.message, source=error.source, line=error.line, remedy=error.remedy
            )
    inputs = input_entries(sources, [*maps, *hashes], results, records)
    without_ids = missing_id_warnings(options, planned, map_results_among(results))
    return MapOutcome(
        build=build_digest(options, inputs, prepared, parent),
        inputs=inputs,
        spills=tuple(spills),
        residues=sum(residues),
        notes=tuple(unmatched_ids(prepared, maps[0].work, map_results_among(results))),
        without_ids=tuple(map(without_credentials, without_ids)),
    )


def map_results_among(results: Sequence[MapResult | HashResult]) -> list[MapResult]:
    """Return the results of map tasks, in order, without those of hash tasks."""
    return [result for result in results if isinstance(result, MapResult)]


def input_warnings(
    options: DatasetOptions,
    planned: Plan,
    results: Sequence[MapResult | HashResult],
    prepared: Sequence[PreparedFile] = (),
) -> list[str]:
    """Return lines that warn of unknown letters, of tables without a column of ids, and of columns
    of --where that have no value.

    Args:
        prepared: files that options name.
    Raises:
        InputError: most of an input's letters are unknown, and --on-invalid was not given.
    """
    maps = map_results_among(results)
    lines = unknown_letter_warnings(options, planned, maps)
    lines += missing_id_warnings(options, planned, maps)
    lines += empty_column_warnings(options, prepared, maps)
    return [without_credentials(line) for line in lines]


def input_entries(
    sources: Sequence[Source],
    tasks: Sequence[MapTask | HashTask],
    results: Sequence[MapResult | HashResult],
    records: Sequence[int],
) -> tuple[InputEntry, ...]:
    """Return the manifest entry of each input.

    Args:
        tasks: tasks that hash the inputs. Tasks of one input are in the order of their ranges.
        results: results of `tasks`.
        records: number of records in each input.
    """
    pieces: dict[str, list[str]] = {source.url: [] for source in sources}
    for task, result in zip(tasks, results, strict=True):
        pieces[task.source.url] += result.pieces
    return tuple(
        InputEntry(
            name=source.name,
            bytes=source.bytes,
            xxh3_128=content_hash(pieces[source.url]),
            records=count,
        )
        for source, count in zip(sources, records, strict=True)
    )


_last_loaded: tuple[str, MapOutcome] | None = None
"""Path and content of the last file read. One file is enough, because a process works on one build
at a time."""


def load_map_outcome(work: Folder, name: str) -> MapOutcome:
    """Return the outcome that `MapOutcome.save` wrote; read the file once per process.

    Raises:
        BuildError: the file is damaged or missing, for example because the machines share no file
            system.
    """
    global _last_loaded
    if _last_loaded is not None and _last_loaded[0] == work.where(name):
        return _last_loaded[1]
    content = work.content(name)
    if content is None:
        raise BuildError(
            f"{work.where(name)} is missing; machines that build a dataset together need "
            "a folder that all of them can reach, or URLs"
        )
    found = read_signed(content, MapOutcome)
    if found is None or not all(
        0 <= spill.source < len(found.inputs) and spill.first_ordinal >= 0 for spill in found.spills
    ):
        raise BuildError(
            f"{work.where(name)} is damaged: a disk, memory or another program changed it; "
            "run the same command again"
        )
    _last_loaded = work.where(name), found
    return found


def build_digest(
    options: DatasetOptions,
    inputs: Sequence[InputEntry],
    prepared: Sequence[PreparedFile],
    parent: Parent | None = None,
) -> str:
    """Return a digest of inputs, named files, options and version, as 16 hexadecimal digits.

    The names of a build's files begin with these digits. The digest of a build that appends to a
    generation also covers that generation, and the records that the append retires.
    """
    contents = [[entry.name, entry.bytes, entry.xxh3_128] for entry in inputs]
    named = [[file.option, file.name, file.xxh3_128] for file in prepared]
    values: dict[str, object] = {
        "thdpack": __version__,
        "options": options.shape(),
        "inputs": contents,
        "named_files": named,
    }
    if parent is not None:
        values["parent"] = parent.digest
        if parent.retired:
            values["retired"] = parent.retired
    return xxhash.xxh3_64_hexdigest(json.dumps(values, sort_keys=True).encode())
