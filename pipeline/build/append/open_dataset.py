"""Open a dataset to which a build adds a generation: claim it, plan tasks, start the executor.

To claim a dataset is to reserve its destination for this build (see `Destination.claim`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pipeline.build.append.build_options import build_options
from pipeline.build.append.options import GenerationOptions
from pipeline.build.build_plan import Plan, absolute, plan, plan_of, planned_here
from pipeline.build.destination.destination import Destination, open_destination
from pipeline.build.destination.missing_file import missing_file
from pipeline.build.options import PreprocessOptions
from pipeline.build.phases import Phases
from pipeline.build.prepare_build import note_other_builds
from pipeline.build.progress.reporter import Reporter
from pipeline.executors.executor import Executor, ExecutorRequest
from pipeline.executors.registry import EXECUTORS
from pipeline.executors.worker_count import workers_of
from pipeline.inputs.error_location import stdin_named
from pipeline.inputs.named.expand import refuse_inside
from pipeline.storage.folder import Folder
from pipeline.storage.probe.first_contact import refuse_unreachable
from pipeline.storage.read_manifest import generation_name, read_manifest
from pipeline.storage.urls import is_url
from schemas.errors import DatasetError, InputError
from schemas.manifest import MANIFEST_NAME, Manifest


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenDataset:
    """A dataset that this process has claimed.

    options: options of the build
    existing: manifest of the current generation
    planned: plan of all inputs that the user named
    """

    options: PreprocessOptions
    destination: Destination
    executor: Executor
    report: Reporter
    existing: Manifest
    planned: Plan

    @property
    def out(self) -> Folder:
        return self.destination.out

    @property
    def phases(self) -> Phases:
        return Phases(self.executor, self.report, self.out)

    def work(self, planned: Plan) -> Folder:
        """Return the folder for intermediate files of a build with this plan."""
        return self.destination.work_folder(planned, self.options)

    def note_other_builds(self, planned: Plan) -> None:
        """Name the work folders of builds other than the build of this plan."""
        note_other_builds(self.destination, planned, self.options, self.report)

    def save_manifest(self) -> None:
        """Save the manifest of the current generation under its number. Call this before the
        commit of the next generation.

        Raises:
            BuildError: the file cannot be written.
        """
        name, content = generation_name(self.existing.generation), self.existing.to_json().encode()
        if self.out.content(name) != content:
            with self.out.written(name) as file:
                file.write(content)


@contextmanager
def open_dataset(
    options: GenerationOptions,
    report: Reporter,
    *,
    rebuild: bool = False,
    discard_refused: bool = False,
) -> Iterator[OpenDataset]:
    """Claim a dataset, plan the build of the inputs, and start the executor.

    Args:
        rebuild: True if the build reads all inputs of the dataset.
        discard_refused: True to remove the work folders in a store if an input is refused. Without
            the input, the next build has another plan, and so another work folder. On a disk, all
            builds share one work folder, which stays.
    Raises:
        InputError: an input cannot be read.
        DatasetError: the dataset is missing or damaged, or has options that append does not
            support.
        BuildError: another build is running.
    """
    kind = EXECUTORS[options.executor]
    dataset = options.dataset
    out = os.path.abspath(dataset) if kind.remote and not is_url(dataset) else dataset
    refuse_unreachable(out)
    destination = open_destination(out)
    read_manifest(out)  # if the folder is not a dataset, the error explains why
    refuse_inside(out, options.inputs, is_dataset=True)
    with destination.claim():
        existing = _current(destination)
        build_as = replace(build_options(options, existing, rebuild=rebuild), out=out)
        _refuse_unfinished(destination)
        spool = destination.spool(build_as)
        with stdin_named(spool):
            planned = plan(build_as, spool=spool) if options.inputs else plan_of([])
            discards = discard_refused and not destination.out.local
            request = ExecutorRequest(
                out=destination.out,
                workers=workers_of(build_as),
                asked_workers=options.workers,
                address=options.ray_address,
            )
            with (
                kind.start(request, report.note) as executor,
                _discarding(destination, executor, discards),
            ):
                yield OpenDataset(
                    options=build_as,
                    destination=destination,
                    executor=executor,
                    report=report,
                    existing=existing,
                    planned=absolute(planned) if kind.remote else planned,
                )


@contextmanager
def _discarding(destination: Destination, executor: Executor, wanted: bool) -> Iterator[None]:
    """If `wanted`, remove this build's work folders when an input is refused."""
    try:
        yield
    except InputError:
        if wanted:
            executor.drain()  # a task that still runs would write into a removed folder
            destination.discard()
        raise


def _current(destination: Destination) -> Manifest:
    """Return the manifest of the current generation. Call this only after the destination was
    claimed.

    Raises:
        DatasetError: the manifest or a file of the dataset is missing or damaged.
    """
    content = destination.manifest() or b""
    existing = Manifest.from_json(content, where=destination.out.where(MANIFEST_NAME))
    problem = missing_file(existing, destination.out)
    if problem is not None:
        raise DatasetError(f"{problem}; the dataset is damaged: build it again")
    return existing


def _refuse_unfinished(destination: Destination) -> None:
    """Refuse to add a generation while the task list of an array job is unfinished.

    Raises:
        DatasetError: such a task list is in the dataset's folder.
    """
    if planned_here(destination.out) is not None:
        raise DatasetError(
            f"{destination.out.where()}: an array job is unfinished here: finish it with "
            "`thdpack commit`, then run this command again"
        )
