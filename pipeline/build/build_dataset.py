"""The offline stage from inputs to manifest: map, reduce, commit. Killed anywhere, the same command goes on from there.

Work in progress lies in DATASET/.build and nothing else reads it; manifest.json is replaced last, and is the only commit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from pipeline.build.assemble_manifest import manifest_of
from pipeline.build.build_plan import PLAN, Plan, absolute, plan, plan_digest, planned_here
from pipeline.build.destination.destination import Destination, missing_file, open_destination
from pipeline.build.map_stage.map_results import (
    Mapped,
    build_digest,
    input_entries,
    mapped_of,
    of_maps,
)
from pipeline.build.map_stage.unknown_letters import unknown_shares
from pipeline.build.options import PreprocessOptions, parse_bytes
from pipeline.build.progress import Reporter
from pipeline.build.rerun_damaged import mended
from pipeline.build.run_task import run_once
from pipeline.build.stages import hash_tasks, map_tasks, reduce_tasks, rest_levels
from pipeline.build.task_markers import Outcome, forget
from pipeline.build.task_results import HashResult, MapResult, PackResult
from pipeline.build.tasks import Job, Task
from pipeline.build.verify.check_shards import check_totals, verify_tasks
from pipeline.executors.executor import Executor
from pipeline.executors.processes import ProcessExecutor, cores
from pipeline.executors.ray_cluster import RayExecutor
from pipeline.inputs.expand import refuse_inside
from pipeline.inputs.source import Source
from pipeline.storage.urls import is_url
from schemas import __version__
from schemas.errors import BuildError, DatasetError, ManifestError
from schemas.manifest import MANIFEST_NAME, Manifest
from schemas.records import Status
from schemas.redact import without_credentials

Result = TypeVar("Result")

WORKER_BYTES: Final = 400 << 20
"""Memory that a worker may need; with --memory, as many run as fit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A dataset that is there.

    fresh: False if it was there already.
    """

    manifest: Manifest
    fresh: bool


def build(options: PreprocessOptions, report: Reporter) -> Built:
    """Build a dataset, or resume, or find that it is there.

    Raises:
        InputError: an input cannot be read or breaks a rule.
        DatasetError: another dataset is there and --overwrite was not given.
        BuildError: the disk is full, a worker was killed, another build runs here.
    """
    elsewhere = options.executor == "ray"  # its workers start in other folders than this command
    refuse_inside(options.out, options.inputs)
    destination = open_destination(
        options.out if is_url(options.out) or not elsewhere else os.path.abspath(options.out)
    )
    existing = existing_dataset(destination, options)
    with destination.claim():
        planned = plan(options, spool=destination.spool(options))
        planned = absolute(planned) if elsewhere else planned
        for line in planned.passed_over:
            report.note(f"passed over {without_credentials(line)}")
        refuse_other_plan(destination, options, planned)
        if existing is not None:
            refuse_if_other(existing, options, planned.sources, destination.out.where())
            destination.will_replace(existing)
        with executor_of(options, destination) as executor:
            return Build(options, planned, destination, executor, report).run(existing)


def executor_of(
    options: PreprocessOptions, destination: Destination
) -> ProcessExecutor | RayExecutor:
    """What --executor names.

    Raises:
        BuildError: it is not installed or does not answer.
    """
    if options.executor != "ray":
        return ProcessExecutor(workers_of(options))
    return RayExecutor(
        destination.out,
        address=options.ray_address,
        workers=options.workers if options.ray_address else workers_of(options),
    )


def workers_of(options: PreprocessOptions) -> int:
    """How many processes fit the options and the memory."""
    memory = (
        parse_bytes(options.memory)
        if options.memory is not None
        else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    )
    return max(1, min(options.workers or cores(), memory // WORKER_BYTES))


def existing_dataset(destination: Destination, options: PreprocessOptions) -> Manifest | None:
    """The dataset that is there already; None if there is none, or a broken one that may be overwritten.

    Raises:
        DatasetError: a manifest that cannot be trusted, and --overwrite was not given.
    """
    content = destination.manifest()
    if content is None:
        return None
    try:
        return Manifest.from_json(content, where=destination.out.where(MANIFEST_NAME))
    except ManifestError as error:
        if options.overwrite:
            return None
        raise ManifestError(f"{error}; --overwrite replaces it") from error


def refuse_if_other(
    existing: Manifest, options: PreprocessOptions, sources: Sequence[Source], out: str
) -> None:
    """Refuse what can be told apart without reading the inputs.

    Raises:
        DatasetError: the dataset there is of other options or inputs, and --overwrite was not given.
    """
    if options.overwrite:
        return
    shape, there = options.shape(), existing.options
    changed = [
        f"--{name.replace('_', '-')} {there.get(name)} → {value}"
        for name, value in shape.items()
        if there.get(name) != value
    ]
    if [(s.name, s.bytes) for s in sources] != [(e.name, e.bytes) for e in existing.inputs]:
        changed.append("the inputs differ")
    if existing.version != __version__:
        changed.append(f"thdpack {existing.version} → {__version__}")
    if changed:
        raise DatasetError(
            f"{out}: holds another dataset ({'; '.join(changed)}); choose another --out, or replace it with --overwrite"
        )


def refuse_other_plan(destination: Destination, options: PreprocessOptions, planned: Plan) -> None:
    """Refuse to take the place of a task list that somebody is working off, or with --overwrite take it.

    Raises:
        DatasetError: the list is not of this plan, and --overwrite was not given.
    """
    there = planned_here(destination.out)
    if there is None or there == plan_digest(options, planned):
        return
    if not options.overwrite:
        raise DatasetError(
            f"{destination.out.where()}: tasks of another plan ({there}) wait to be run here; choose another --out, or replace it with --overwrite"
        )
    destination.out.remove(PLAN)  # whose tasks then find that it is gone


class Build:
    """One run of the three stages."""

    def __init__(
        self,
        options: PreprocessOptions,
        planned: Plan,
        destination: Destination,
        executor: Executor,
        report: Reporter,
    ) -> None:
        self._options = options
        self._plan = planned
        self._destination = destination
        self._out = destination.out
        self._work = destination.work_folder(planned, options)
        self._executor = executor
        self._report = report

    def run(self, existing: Manifest | None) -> Built:
        if (
            existing is not None and not self._options.overwrite
        ):  # which may be there because the dataset is damaged
            self._refuse_other_inputs(existing)
            problem = missing_file(existing, self._out)
            if problem is not None:
                raise DatasetError(
                    f"{problem}; the dataset is damaged: build it again with --overwrite"
                )
            return self.found(existing)
        return mended(self._built, lambda _: None, self._work, self._report)

    def _built(self) -> Built:
        """The dataset. What an earlier attempt finished is recognised by its markers."""
        mapped = self._map()
        job = Job(
            build=mapped.build, options=self._options.of_dataset, out=self._out, work=self._work
        )
        mapped.save(job)
        tasks = reduce_tasks(job, self._plan.partitions)
        parts = self._phase("deduplicate, shuffle, pack", tasks, mapped.residues)
        return self.finish(job, mapped, parts)

    def found(self, existing: Manifest) -> Built:
        """The dataset that is there is the one asked for; what this build left goes."""
        self._destination.clear(existing, self._work)
        return Built(manifest=existing, fresh=False)

    def finish(self, job: Job, mapped: Mapped, parts: Sequence[PackResult]) -> Built:
        """What is left once every partition is reduced: pack the rests, verify, commit.

        Args:
            parts: results of all reduce tasks, in order.
        Raises:
            DatasetError: no record was kept.
        """
        parts = list(parts)
        tasks: list[Task[PackResult]] = [*reduce_tasks(job, self._plan.partitions)]
        for level in rest_levels(
            job, [task.rest for task in reduce_tasks(job, self._plan.partitions)]
        ):
            parts += self._phase("pack the rest" if level[0].final else "pack the rests", level, 0)
            tasks += level
        manifest = manifest_of(self._options, mapped.build, mapped.inputs, parts)
        if not manifest.records_by_status[Status.KEPT]:
            left_out = ", ".join(
                f"{count:,} {status}"
                for status, count in manifest.records_by_status.items()
                if count
            )
            raise DatasetError(
                f"no record was kept ({left_out}): nothing was committed; see --min-residues, --long and --on-invalid"
            )
        self._verify(manifest, tasks, parts)
        self._executor.end()
        self._destination.commit(manifest)
        self._destination.clear(manifest, self._work)
        return Built(manifest=manifest, fresh=True)

    def _phase(self, name: str, tasks: Sequence[Task[Result]], total_bytes: int) -> list[Result]:
        """Run the tasks of a phase; results in their order."""
        self._report.phase(name, total_bytes)
        results: dict[int, Result] = {}
        skipped = 0

        def keep(index: int, outcome: Outcome[Result]) -> None:
            nonlocal skipped
            results[index] = outcome.result
            skipped += outcome.skipped

        self._executor.run(partial(run_once, out=self._out), tasks, keep, self._report.advance)
        if skipped:
            self._report.note(
                f"{name}: {skipped} of {len(tasks)} tasks were finished by an earlier run, skipped",
                skipped=skipped,
                tasks=len(tasks),
            )
        return [results[index] for index in range(len(tasks))]

    def _map(self) -> Mapped:
        maps, hashes = (
            map_tasks(self._plan, self._options.of_dataset, self._work),
            hash_tasks(self._plan, self._work),
        )
        hashed = sum(task.end - task.begin for task in hashes)  # read a second time
        tasks: list[Task[MapResult | HashResult]] = [*maps, *hashes]
        results = self._phase("read, tokenize, partition", tasks, self._plan.input_bytes + hashed)
        mapped = mapped_of(self._options, self._plan, maps, hashes, results)
        for line in unknown_shares(self._options, self._plan, of_maps(results)):
            self._report.note(without_credentials(line))
        return mapped

    def _refuse_other_inputs(self, existing: Manifest) -> None:
        """Refuse inputs that the dataset there did not come of. Reads all of them.

        Raises:
            DatasetError: it came of others.
        """
        sources = self._plan.sources
        tasks = hash_tasks(self._plan, self._work, every=True)
        results = self._phase("compare inputs", tasks, self._plan.input_bytes)
        found = input_entries(sources, tasks, results, [entry.records for entry in existing.inputs])
        if build_digest(self._options, found) != existing.build:
            raise DatasetError(
                f"{self._out.where()}: the inputs changed since this dataset was built; choose another --out, or replace it with --overwrite"
            )

    def _verify(
        self, manifest: Manifest, tasks: Sequence[Task[PackResult]], parts: Sequence[PackResult]
    ) -> None:
        """Read everything back before it is committed.

        Args:
            tasks: that wrote it, with their results.
        Raises:
            BuildError: what was written is not what was meant; what wrote it will run again.
        """
        checks = verify_tasks(manifest, self._out, self._work)
        found = self._phase("verify", checks, sum(entry.bytes for entry in manifest.files()))
        problems = check_totals(manifest) + [
            problem for result in found for problem in result.problems
        ]
        if not problems:
            return
        wrong = [check for check, result in zip(checks, found, strict=True) if result.problems]
        damaged = {
            entry.name
            for check in wrong
            for files in (check.shards, check.records)
            for entry in files
        }
        for task, part in zip(tasks, parts, strict=True):
            forget(task, part, damaged, self._out)
        raise BuildError(
            "the dataset does not verify, nothing was committed; the same command writes these files again:\n"
            + "\n".join(problems)
        )
