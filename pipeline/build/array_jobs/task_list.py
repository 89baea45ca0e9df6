"""The task list of a build. Every process that a scheduler starts reads this list.

Every process needs access to the dataset's folder. The list holds the tasks of these stages:

1. map: map tasks, and hash tasks, which hash ranges of Parquet and Arrow inputs
2. link, with --clusters or --sample-clusters
3. draw, with --sample-clusters
4. reduce

A task can run only after all tasks of earlier stages have finished. A finished task leaves a marker
(a JSON file). A task may run twice, even at the same time on two machines: both runs write the same
bytes.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any, Final

from pipeline.build.array_jobs.task_list_file import read_list
from pipeline.build.build_plan import PLAN, Plan, absolute, comes_of, plan_digest
from pipeline.build.destination.destination import Destination, open_destination
from pipeline.build.map_stage.hash_task import HashTask
from pipeline.build.named_files.named_file import without_mmseqs
from pipeline.build.options import PreprocessOptions
from pipeline.build.prepare_build import prepared
from pipeline.build.progress.reporter import Reporter
from pipeline.build.run_task import run_once
from pipeline.build.stages import hash_tasks, map_tasks, prepare_tasks
from pipeline.build.task_markers import finished
from pipeline.build.task_results import PreparedFile
from pipeline.build.tasks import Job, MapTask
from pipeline.inputs.file_names import as_text
from pipeline.storage.folder import Folder
from pipeline.storage.probe.first_contact import refuse_unreachable
from pipeline.storage.signed_json import signed
from pipeline.storage.urls import is_url
from schemas import __version__
from schemas.code_digest import code_digest
from schemas.errors import BuildError, DatasetError, OptionError
from schemas.manifest import Manifest
from schemas.text.phrases import plural
from schemas.text.redact import holds_secret, without_credentials

STAGES: Final = ("map", "link", "draw", "reduce")
"""Stages that a scheduler runs. Only a build with clusters has the stage `link`, and only a build
with --sample-clusters has the stage `draw`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskList:
    """A planned build.

    first_variant: number of the first variant to build; 0, unless the build adds variants to an
        existing dataset
    """

    options: PreprocessOptions
    plan: Plan
    destination: Destination
    first_variant: int = 0

    @property
    def out(self) -> Folder:
        return self.destination.out

    @property
    def work(self) -> Folder:
        return self.destination.work_folder(self.plan, self.options)

    @property
    def counts(self) -> dict[str, int]:
        """Number of tasks of each stage."""
        return task_counts(self.options, self.plan)

    @property
    def maps(self) -> list[MapTask]:
        return map_tasks(
            self.plan,
            self.options.of_dataset,
            self.work,
            self.options.allowed,
            prepared=self.prepared,
        )

    @property
    def prepared(self) -> tuple[PreparedFile, ...]:
        """Files that options name, which `plan_tasks` converted into work files.

        Raises:
            BuildError: a work file is missing.
        """
        tasks = prepare_tasks(self.plan, self.work)
        found = [finished(task, self.out) for task in tasks]
        for task, result in zip(tasks, found, strict=True):
            if result is None:
                raise BuildError(
                    f"{self.work.where(task.prepared)}: the content of {task.file.name} is missing "
                    "or incomplete; plan again, with --overwrite"
                )
        return tuple(result for result in found if result is not None)

    @property
    def hashes(self) -> list[HashTask]:
        return hash_tasks(self.plan, self.work)

    def job(self, build: str) -> Job:
        return Job(
            build=build,
            options=self.options.of_dataset,
            out=self.out,
            work=self.work,
            prepared=self.prepared,
            variants=range(self.first_variant, self.options.variants),
        )

    @property
    def digest(self) -> str:
        """Name of the plan (see `plan_digest`)."""
        return plan_digest(self.options, self.plan)

    def to_json(self) -> dict[str, Any]:
        return {
            "thdpack": __version__,
            "code": code_digest(),
            "pyarrow": version("pyarrow"),
            "digest": self.digest,
            "version_at_start": self.destination.version_at_start,
            "first_variant": self.first_variant,
            "options": asdict(self.options),
            "plan": {**asdict(self.plan), "passed_over": []},
        }


def task_counts(options: PreprocessOptions, planned: Plan) -> dict[str, int]:
    """Return the number of tasks of each stage of a build."""
    draws = options.sample_clusters is not None
    links = draws or options.clusters is not None
    return {
        "map": len(planned.ranges) + len(planned.hashed),
        **({"link": planned.partitions} if links else {}),
        **({"draw": planned.partitions} if draws else {}),
        "reduce": planned.partitions,
    }


def refuse_unlistable(options: PreprocessOptions) -> None:
    """Refuse options of a build that cannot be a task list.

    Raises:
        OptionError: standard input is named, or an option asks for a run of MMseqs2.
        BuildError: a URL holds credentials.
    """
    single = (options.clusters, options.sample_clusters, options.metadata)
    named = (*options.exclude, *filter(None, single))
    _refuse_secrets(options.out, *options.inputs, *(without_mmseqs(v)[0] for v in named))
    if mmseqs := [value for value in named if without_mmseqs(value)[1]]:
        raise OptionError(
            f"a task list cannot contain {mmseqs[0]}, because MMseqs2 needs the records of all map "
            "tasks at once: build with `thdpack preprocess`, or run MMseqs2 yourself and name the "
            "table that it writes"
        )
    if "-" in options.inputs:
        raise OptionError("only one process can read standard input: write it to a file first")


def plan_tasks(options: PreprocessOptions, report: Reporter) -> TaskList:
    """Cut the inputs into tasks, and write the list into the dataset's work folder.

    Raises:
        InputError: an input is missing or unreadable.
        DatasetError: another dataset or plan exists, and --overwrite was not given.
        OptionError: standard input is named, or an option asks for a run of MMseqs2.
        BuildError: another build is running, or a URL holds credentials.
    """
    refuse_unlistable(options)
    destination = open_destination(options.out)
    with prepared(options, destination, report) as (planned, existing):
        _refuse_secrets(*(source.url for source in planned.sources))  # an @LIST may name some
        _refuse_secrets(*(file.url for file in planned.named_files))
        planned = replace(absolute(planned), passed_over=())
        listed = TaskList(
            options=options,
            plan=planned,
            destination=destination,
            first_variant=_first_variant(existing, options),
        )
        for task in prepare_tasks(planned, listed.work):
            report.note(f"read --{task.file.option} {without_credentials(task.file.url)}")
            run_once(task, lambda _: None, out=destination.out, durable=True)
        with destination.out.written(PLAN) as file:
            file.write(signed(listed.to_json()))
        if not destination.out.local and (note := _note_on_local_inputs(planned)):
            report.note(note)
        if existing is not None and not options.overwrite and not listed.first_variant:
            report.note(
                f"{destination.out.where()}: this folder already has a dataset that was built from "
                "inputs with these names and sizes. The tasks also check whether the contents of "
                "the inputs are equal. If they are, `thdpack commit` only removes the task list"
            )
    return listed


def _note_on_local_inputs(planned: Plan) -> str:
    """Return a note about inputs that are not in a store; "" if all are in one."""
    local = [source.url for source in planned.sources if not is_url(source.url)]
    if not local:
        return ""
    more = f" and {plural(len(local) - 1, 'other input')}" if len(local) > 1 else ""
    are, them = ("are", "their folders") if more else ("is", "its folder")
    return (
        f"{as_text(local[0])}{more} {are} not in a store: every node that runs map tasks must "
        f"mount {them} at the same path. A copy on another disk counts as a changed input"
    )


def _first_variant(existing: Manifest | None, options: PreprocessOptions) -> int:
    """Return the number of the first variant that a build adds to an existing dataset; 0 without
    such a dataset, or if all variants exist."""
    if existing is None or options.overwrite or existing.variants >= options.variants:
        return 0
    return existing.variants


def _refuse_secrets(*urls: str) -> None:
    """Refuse URLs with credentials, because other users may read the task list.

    Raises:
        BuildError: a URL holds credentials.
    """
    for url in urls:
        if holds_secret(url):
            where = without_credentials(url)
            raise BuildError(
                f"{where}: the task list would hold the credentials of this URL; "
                "set the credentials in the environment"
            )


def _refuse_other_name(digest: str, hint: str = "") -> None:
    """Refuse text that cannot be the name of a plan.

    Raises:
        OptionError: the text is not 16 hexadecimal digits, a hyphen, and 16 hexadecimal digits.
    """
    if not re.fullmatch(r"[0-9a-f]{16}-[0-9a-f]{16}", digest):
        raise OptionError(
            f"--plan {digest}: not the name of a plan; copy the name that plan-tasks printed{hint}"
        )


def load_task_list(dataset: str, digest: str | None) -> TaskList | None:
    """Return the list that `plan_tasks` wrote; None if the planned dataset is committed.

    Args:
        digest: name of the plan. With None, the function accepts any plan or committed dataset.
    Raises:
        DatasetError: neither a list nor a dataset of this plan exists, or the store does not
            answer.
        OptionError: `digest` cannot be the name of a plan.
        BuildError: the list has another digest, or was written by other source code of thdpack.
    """
    refuse_unreachable(dataset)
    destination = open_destination(dataset)
    where, content = destination.out.where(), destination.out.content(PLAN)
    if content is None:
        manifest = destination.manifest()
        if manifest is None:
            raise DatasetError(
                f"{where}: nothing is planned here; run `thdpack plan-tasks … --out {where}` first"
            )
        if digest is None or comes_of(Manifest.from_json(manifest, where=where), digest):
            return None
        _refuse_other_name(digest)
        raise DatasetError(
            f"{where}: plan {digest} is not here, and the dataset here belongs to another plan: "
            "check the digest and the dataset's folder; if they are right, somebody has replaced "
            "or extended the dataset, so plan with another --out"
        )
    found = read_list(content, destination.out.where(PLAN))
    if digest is not None and found.digest != digest:
        _refuse_other_name(digest, f"; the plan here is {found.digest}")
        raise BuildError(
            f"{where}: another plan is here ({found.digest}), not {digest}: check the digest; if "
            "it is right, somebody planned with --overwrite, so plan with another --out"
        )
    destination.resume(found.version_at_start)
    return TaskList(
        options=found.options,
        plan=found.plan,
        destination=destination,
        first_variant=found.first_variant,
    )
