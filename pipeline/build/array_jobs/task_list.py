"""A build as a task list that a scheduler works off: plan it once, run its tasks anywhere, commit.

Every process sees the dataset's folder. The list is `map` and hash tasks first, then `reduce` tasks, numbered through; a reduce task needs all
map tasks. A task that ran leaves its marker, so a task may run twice, or at once on two machines, and the bytes are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from pipeline.build.array_jobs.task_list_file import read_list
from pipeline.build.build_dataset import (
    Build,
    Built,
    existing_dataset,
    refuse_if_other,
    refuse_other_plan,
    workers_of,
)
from pipeline.build.build_plan import PLAN, Plan, absolute, comes_of, plan, plan_digest
from pipeline.build.destination.destination import Destination, missing_file, open_destination
from pipeline.build.map_stage.map_results import Mapped, load_mapped, mapped_of, of_maps
from pipeline.build.map_stage.unknown_letters import unknown_shares
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress import Reporter
from pipeline.build.rerun_damaged import mended
from pipeline.build.run_task import run_once
from pipeline.build.stages import hash_tasks, map_tasks, reduce_tasks
from pipeline.build.task_markers import finished
from pipeline.build.task_results import HashResult, MapResult
from pipeline.build.tasks import HashTask, Job, MapTask, ReduceTask, Task
from pipeline.executors.executor import Executor, SerialExecutor
from pipeline.executors.processes import ProcessExecutor
from pipeline.inputs.expand import refuse_inside
from pipeline.inputs.find import unchanged
from pipeline.inputs.source import Source
from pipeline.storage.folder import Folder
from pipeline.storage.retries import AT_ONCE
from pipeline.storage.signed_json import read_signed, signed
from schemas import __version__
from schemas.code_digest import code_digest
from schemas.errors import BuildError, DatasetError, InputError
from schemas.manifest import Manifest
from schemas.redact import holds_secret, without_credentials
from schemas.untrusted_json import BuildName

Result = TypeVar("Result")

_LOG: Final = logging.getLogger("thdpack")
STAGES: Final = ("map", "reduce")
_NAMED: Final = 10
"""How many unfinished tasks an error names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskList:
    """A planned build: what every task of it is made of."""

    options: PreprocessOptions
    plan: Plan
    destination: Destination

    @property
    def out(self) -> Folder:
        return self.destination.out

    @property
    def work(self) -> Folder:
        return self.destination.work_folder(self.plan, self.options)

    @property
    def counts(self) -> dict[str, int]:
        """Tasks of each stage."""
        return {
            "map": len(self.plan.ranges) + len(self.plan.hashed),
            "reduce": self.plan.partitions,
        }

    @property
    def maps(self) -> list[MapTask]:
        return map_tasks(self.plan, self.options.of_dataset, self.work)

    @property
    def hashes(self) -> list[HashTask]:
        return hash_tasks(self.plan, self.work)

    def job(self, build: str) -> Job:
        return Job(build=build, options=self.options.of_dataset, out=self.out, work=self.work)

    def to_json(self) -> dict[str, Any]:
        plan = {**asdict(self.plan), "passed_over": []}
        return {
            "thdpack": __version__,
            "code": code_digest(),
            "digest": self.digest,
            "mark": self.destination.version_at_start,
            "options": asdict(self.options),
            "plan": plan,
        }

    @property
    def digest(self) -> str:
        """Names the plan; see pipeline.build.build_plan."""
        return plan_digest(self.options, self.plan)


def plan_tasks(options: PreprocessOptions, report: Reporter) -> TaskList:
    """Cut the inputs into tasks and leave the list in the dataset's work folder.

    Raises:
        InputError: an input is missing or unreadable; DatasetError: another dataset or plan is there and --overwrite was not given.
        BuildError: another build runs here, a URL holds credentials, or standard input is named.
    """
    _refuse_secrets(options.out, *options.inputs)
    if "-" in options.inputs:
        raise BuildError(
            "standard input is there for one process only; write it to a file for a task list"
        )
    refuse_inside(options.out, options.inputs)
    destination = open_destination(options.out)
    existing = existing_dataset(destination, options)
    with destination.claim():
        planned = plan(options)
        _refuse_secrets(
            *(source.url for source in planned.sources)
        )  # those that stand in a list, too
        for line in planned.passed_over:
            report.note(f"passed over {without_credentials(line)}")
        refuse_other_plan(destination, options, planned)
        if existing is not None:
            refuse_if_other(existing, options, planned.sources, destination.out.where())
        listed = TaskList(
            options=options,
            plan=replace(absolute(planned), passed_over=()),
            destination=destination,
        )
        with destination.out.written(PLAN) as file:
            file.write(signed(listed.to_json()))
    return listed


def _refuse_secrets(*urls: str) -> None:
    """The list is a file that others read.

    Raises:
        BuildError: a URL lets somebody in.
    """
    for url in urls:
        if holds_secret(url):
            raise BuildError(
                f"{without_credentials(url)}: credentials in a URL would be written into the task list; give them by the environment"
            )


def load_task_list(dataset: str, digest: str | None) -> TaskList | None:
    """The list that `plan_tasks` left; None if it was committed.

    Args:
        digest: of the plan it has to be; None takes what is there, and any dataset for the one that was planned.
    Raises:
        DatasetError: there is no list, and no dataset that came of it; BuildError: another list is there, or another version of thdpack planned it.
    """
    destination = open_destination(dataset)
    where, content = destination.out.where(), destination.out.content(PLAN)
    if content is None:
        there = destination.manifest()
        if there is None:
            raise DatasetError(
                f"{where}: nothing is planned here; run `thdpack plan-tasks … --out {where}` first"
            )
        if digest is None or comes_of(Manifest.from_json(there, where=where), digest):
            return None
        raise DatasetError(
            f"{where}: plan {digest} is gone, and the dataset here is another one's: somebody built it with --overwrite; plan elsewhere"
        )
    noted = read_list(content, destination.out.where(PLAN))
    if digest is not None and noted.digest != digest:
        raise BuildError(
            f"{where}: another plan is here ({noted.digest}), not {digest}: somebody planned with --overwrite; plan elsewhere"
        )
    destination.resume(noted.mark)
    return TaskList(options=noted.options, plan=noted.plan, destination=destination)


def run_tasks(
    listed: TaskList, stage: str | None, index: int, every: int | None, report: Reporter
) -> int:
    """Run task `index` of a stage (None: of the whole list), or with `every` all tasks ≡ index mod every; how many there were.

    Raises:
        ThdpackError: what a task raises; BuildError if the stage before has not finished, InputError if an input is no longer what was planned.
    """
    with listed.destination.claim(shared=True):
        tasks = _chosen(listed, stage, index, every)
        for task in tasks:
            if isinstance(task, MapTask | HashTask):
                _refuse_if_changed(task.source)
        report.phase(stage or "run", 0)
        _run_mended(listed, tasks, SerialExecutor(durable=True), report)
    return len(tasks)


def _run_mended(
    listed: TaskList, tasks: Sequence[Task[Any]], executor: Executor, report: Reporter
) -> None:
    """Run tasks, and before them again those whose spills were damaged meanwhile."""

    def run(chosen: Sequence[Task[Any]]) -> None:
        executor.run(
            partial(run_once, out=listed.out), chosen, lambda _, outcome: None, report.advance
        )

    def run_again(name: str) -> None:
        run([task for task in (*listed.maps, *tasks) if task.name == name])

    mended(lambda: run(tasks), run_again, listed.work, report)


def commit(listed: TaskList, workers: int | None, report: Reporter) -> Built:
    """Pack the rests, verify and write the manifest, once every task of the list has run.

    Raises:
        BuildError: tasks have not finished; the message names them. DatasetError: the dataset there is another.
    """
    destination, options = listed.destination, replace(listed.options, workers=workers)
    with destination.claim():
        mapped = _mapped(listed)
        existing = existing_dataset(destination, options)
        if existing is not None:
            destination.will_replace(existing)
        with ProcessExecutor(workers_of(options)) as executor:
            build = Build(listed.options, listed.plan, destination, executor, report)
            if existing is not None and _is_this(existing, listed, mapped):
                return build.found(existing)
            job = listed.job(mapped.build)
            reduces = reduce_tasks(job, listed.plan.partitions)

            def run_again(name: str) -> None:  # a rest task runs with the commit
                _run_mended(
                    listed, [task for task in reduces if task.name == name], executor, report
                )

            return mended(
                lambda: build.finish(job, mapped, _results(listed, "reduce", reduces)),
                run_again,
                listed.work,
                report,
            )


def _chosen(
    listed: TaskList, stage: str | None, index: int, every: int | None
) -> Sequence[Task[Any]]:
    """The tasks that an index stands for."""
    counts = listed.counts
    total = sum(counts.values()) if stage is None else counts[stage]
    if stage is None:
        stage, index, total = (
            ("map", index, counts["map"])
            if index < counts["map"]
            else ("reduce", index - counts["map"], counts["reduce"])
        )
    if every is None and index >= total:
        raise DatasetError(
            f"{listed.out.where()}: --index is beyond the list of {' + '.join(f'{n} {name}' for name, n in counts.items())} tasks"
        )
    indices = range(index, total, every or total)
    if stage == "map":
        mapping: list[Task[Any]] = [*listed.maps, *listed.hashes]
        return [mapping[i] for i in indices]
    mapped = _mapped(listed)
    existing = existing_dataset(listed.destination, listed.options)
    if existing is not None and _is_this(existing, listed, mapped):
        return []
    job = listed.job(mapped.build)
    return [ReduceTask(job=job, partition=i, partitions=listed.plan.partitions) for i in indices]


def _refuse_if_changed(source: Source) -> None:
    """Refuse an input that is no longer what was planned.

    Raises:
        InputError: its size, time or etag is another.
    """
    if not unchanged(source):
        raise InputError(
            "changed since the tasks were planned (content, permissions or links); plan again, with --overwrite",
            source=source.url,
        )


def _is_this(existing: Manifest, listed: TaskList, mapped: Mapped) -> bool:
    """Whether the dataset that is there is what the list would build; never with --overwrite, which may be there because the dataset is damaged.

    Raises:
        DatasetError: it is of other inputs, or damaged, and --overwrite was not given.
    """
    if listed.options.overwrite:
        return False
    problem = missing_file(existing, listed.out)
    if existing.build == mapped.build and problem is None:
        return True
    problem = problem or "the inputs changed since this dataset was built"
    raise DatasetError(
        f"{listed.out.where()}: {problem}; choose another --out, or replace it with --overwrite when planning"
    )


def _mapped(listed: TaskList) -> Mapped:
    """What the map stage found; whoever asks first adds it up, for all that come later.

    Raises:
        BuildError: map tasks have not finished. InputError: an input holds no residue, or is mostly <unk>.
    """
    known, work = f"plan-{listed.digest}.json", listed.work
    noted = read_signed(work.content(known), _Known)
    if noted is not None:
        with suppress(BuildError):  # damaged, or gone: what tasks left says it again
            return load_mapped(work, listed.job(noted.build).mapped)
    maps, hashes = listed.maps, listed.hashes
    tasks: list[Task[MapResult | HashResult]] = [*maps, *hashes]
    results = _results(listed, "map", tasks)
    mapped = mapped_of(listed.options, listed.plan, maps, hashes, results)
    for line in unknown_shares(listed.options, listed.plan, of_maps(results)):
        _LOG.warning("%s", without_credentials(line))
    mapped.save(listed.job(mapped.build), durable=True)
    with work.written(known) as file:
        file.write(signed({"build": mapped.build}))
    return mapped


class _Known(msgspec.Struct):
    """What the map stage of a plan came to."""

    build: BuildName


def _results(listed: TaskList, stage: str, tasks: Sequence[Task[Result]]) -> list[Result]:
    """What the tasks of a stage left.

    Raises:
        BuildError: some have not finished; names them.
    """
    out = listed.out
    with ThreadPoolExecutor(AT_ONCE) as threads:  # a store takes its time over each
        found = list(threads.map(lambda task: finished(task, out), tasks))
    missing = [str(i) for i, result in enumerate(found) if result is None]
    if missing:
        named = ",".join(missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
        raise BuildError(
            f"{out.where()}: {len(missing)} of {len(tasks)} {stage} tasks have not finished (--stage {stage} --index {named}); run them first"
        )
    return [result for result in found if result is not None]
