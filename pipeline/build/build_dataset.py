"""Build a dataset, from the inputs to the manifest, in three stages: map, reduce, commit.

Files of --exclude, --clusters, --sample-clusters and --metadata are read before the first stage.
Three stages between map and reduce are optional. `search_stage/` runs MMseqs2 if the value of one
of these options begins with `mmseqs:`. With --clusters or --sample-clusters, `link_stage/` finds
the cluster of each record. With --sample-clusters, `draw_stage/` finds the members (kept records)
of each cluster.

1. Map: read ranges of the inputs, tokenize the records, and sort the records into partitions
   (`map_stage/`). A partition is a subset of the records, chosen by hash.
2. Reduce: for each partition, drop duplicates, shuffle, pack, and write shards (`reduce_stage/`).
3. Commit: pack the sequences that did not fill a bucket in the reduce stage, verify all files, and
   replace manifest.json.

A folder is a dataset only once it has a manifest. Intermediate files are in DATASET/.build. Run the
same command to resume a build after a crash.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pipeline.build.assemble_manifest import Built, manifest_of, refuse_empty, with_variants
from pipeline.build.build_plan import Plan, absolute
from pipeline.build.clusters.earlier_task import EarlierClusters
from pipeline.build.clusters.joined_clusters import NO_EARLIER, join_linked
from pipeline.build.clusters.member_files import merge_members
from pipeline.build.destination.destination import Destination, open_destination
from pipeline.build.destination.free_space import check_free_space
from pipeline.build.destination.missing_file import missing_file
from pipeline.build.generations.parent import Parent
from pipeline.build.map_stage.map_results import (
    MapOutcome,
    build_digest,
    input_entries,
)
from pipeline.build.options import PreprocessOptions
from pipeline.build.phases import Phases
from pipeline.build.prepare_build import OTHER_OUT, prepared
from pipeline.build.progress.reporter import Reporter
from pipeline.build.progress.timeline import check_timeline, write_timeline
from pipeline.build.reduce_stage.exclude_records import unused_exclusions
from pipeline.build.reduce_stage.residue_fates import fates_in_results
from pipeline.build.rerun_damaged import mended
from pipeline.build.stages import (
    draw_tasks,
    hash_tasks,
    link_tasks,
    prepare_tasks,
    reduce_tasks,
    rest_levels,
    search_tasks,
)
from pipeline.build.task_results import (
    LinkResult,
    PackResult,
    PreparedFile,
)
from pipeline.build.tasks import Job, Task
from pipeline.build.unpack_stage.map_inputs import MapStage
from pipeline.build.verify_build import verify_new_files
from pipeline.executors.executor import Executor, ExecutorRequest
from pipeline.executors.registry import EXECUTORS
from pipeline.executors.worker_count import workers_of
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.urls import is_url
from schemas.errors import DatasetError
from schemas.manifest import Manifest


def build(options: PreprocessOptions, report: Reporter) -> Built:
    """Build a dataset, or resume its build. If the same dataset already exists, return it.

    Raises:
        InputError: an input cannot be read or breaks a rule.
        DatasetError: another dataset exists, and --overwrite was not given; or no record was kept.
        BuildError: for example, the disk is full, a worker was killed, or another build is running.
    """
    if options.timeline is not None:
        check_timeline(options.timeline)
    kind = EXECUTORS[options.executor]
    out = os.path.abspath(options.out) if kind.remote and not is_url(options.out) else options.out
    destination = open_destination(out)
    with prepared(options, destination, report) as (planned, existing):
        planned = absolute(planned) if kind.remote else planned
        if existing is not None:
            destination.will_replace(existing)
        request = ExecutorRequest(
            out=destination.out,
            workers=workers_of(options),
            asked_workers=options.workers,
            address=options.ray_address,
        )
        with kind.start(request, report.note) as executor:
            run = Build(options, planned, destination, executor, report)
            try:
                built = run.run(existing)
            finally:
                if options.timeline is not None:
                    write_timeline(Path(options.timeline), run.phases.times)
    return replace(built, skipped=planned.passed_over)


class Build:
    """One run of the three stages."""

    def __init__(
        self,
        options: PreprocessOptions,
        planned: Plan,
        destination: Destination,
        executor: Executor,
        report: Reporter,
        parent: Parent | None = None,
    ) -> None:
        self.options = options
        self._plan = planned
        self._destination = destination
        self._out = destination.out
        self.work = destination.work_folder(planned, options)
        self._executor = executor
        self._report = report
        self._parent = parent
        self._mmseqs_seconds = 0.0
        self.phases = Phases(executor, report, destination.out)

    def run(self, existing: Manifest | None) -> Built:
        """Build the dataset. Without --overwrite, return an existing dataset as it is, or add the
        variants that it lacks.

        Raises:
            DatasetError: the existing dataset is damaged or has other inputs, and --overwrite was
                not given.
        """
        if self.options.overwrite:
            existing = None  # build it again, even if it is damaged
        if existing is not None:
            problem = missing_file(existing, self._out)
            if problem is not None:
                raise DatasetError(
                    f"{problem}; the dataset is damaged: build it again with --overwrite"
                )
            if existing.variants == self.options.variants:
                self._refuse_other_inputs(existing)
                return self.found(existing)
        return mended(partial(self._build, existing), lambda _: None, self.work, self._report)

    def found(self, existing: Manifest) -> Built:
        """Return the existing dataset, and remove the intermediate files of its build."""
        self._destination.clear(existing, self.work)
        return Built(manifest=existing, fresh=False)

    def _build(self, existing: Manifest | None) -> Built:
        """Run all stages, but skip finished tasks. A finished task has a marker file.

        Args:
            existing: dataset to which variants are added; None to build a dataset.
        """
        if isinstance(self._out, LocalFolder):
            check_free_space(self.options, self._plan, self._out.path, existing)
        prepared = self.prepare()
        map_outcome = self._map(prepared)
        if existing is not None and existing.build != map_outcome.build:
            raise self._other_inputs()
        self._destination.will_write(map_outcome.build)
        job = Job(
            build=map_outcome.build,
            options=self.options.of_dataset,
            out=self._out,
            work=self.work,
            prepared=prepared,
            variants=range(existing.variants if existing else 0, self.options.variants),
            parent=self._parent,
        )
        map_outcome.save(job)
        job = self._search(job)
        self._find_clusters(job, map_outcome.residues)
        tasks = reduce_tasks(job, self._plan.partitions)
        parts = self.phases.run("deduplicate, shuffle, pack", tasks, map_outcome.residues)
        return self.finish(job, map_outcome, parts, existing)

    def finish(
        self,
        job: Job,
        map_outcome: MapOutcome,
        parts: Sequence[PackResult],
        existing: Manifest | None = None,
    ) -> Built:
        """Commit the dataset: pack left-over sequences, verify all new files, replace the manifest.

        Args:
            parts: results of all reduce tasks, in the order of partitions.
            existing: see `_build`.
        Raises:
            DatasetError: no record was kept.
        """
        parts = list(parts)
        reduces = reduce_tasks(job, self._plan.partitions)
        tasks: list[Task[PackResult]] = [*reduces]
        for level in rest_levels(job, reduces):
            name = "pack all left-over sequences" if level[0].final else "pack left-over sequences"
            parts += self.phases.run(name, level, 0)
            tasks += level
        contents = (map_outcome.build, map_outcome.inputs, parts, job.prepared)
        manifest = existing or manifest_of(self.options, *contents)
        manifest = with_variants(manifest, self.options, parts, job.variants)
        whole = self.whole_manifest(manifest)
        notes = (*map_outcome.notes, *unused_exclusions(job.prepared, parts))
        for line in notes:
            self._report.note(line)
        verify_new_files(manifest, job.variants, tasks, parts, self.work, self.phases)
        self._executor.end()
        self._destination.commit(whole)
        self._destination.clear(whole, self.work)
        return Built(
            manifest=whole,
            added=manifest if self._parent else None,
            fresh=True,
            fates=fates_in_results(parts),
            notes=(*map_outcome.without_ids, *notes),
            mmseqs_seconds=self._mmseqs_seconds,
            resumed=self.phases.resumed,
            phases=tuple(self.phases.times),
        )

    def whole_manifest(self, manifest: Manifest) -> Manifest:
        """Return the manifest to commit, given the manifest of this build's records.

        Raises:
            DatasetError: no record was kept.
        """
        refuse_empty(manifest)
        return manifest

    def prepare(self) -> tuple[PreparedFile, ...]:
        """Write a work file (an intermediate file of the build) for each file that an option
        names."""
        tasks = prepare_tasks(self._plan, self.work)
        if not tasks:
            return ()
        options = ", ".join(f"--{option}" for option in dict.fromkeys(t.file.option for t in tasks))
        return tuple(self.phases.run(f"read {options}", tasks, sum(t.file.bytes for t in tasks)))

    def _search(self, job: Job) -> Job:
        """Search or cluster the records that the map stage kept. Return a job with the results."""
        prepared, started = list(job.prepared), time.perf_counter()
        # one task at a time, because MMseqs2 uses all cores; 0, because the tasks report no bytes
        for task in search_tasks(job, self._plan, workers_of(self.options)):
            prepared[task.index] = self.phases.run(task.purpose, [task], 0)[0]
            self._mmseqs_seconds = time.perf_counter() - started
        return replace(job, prepared=tuple(prepared))

    def _map(self, prepared: tuple[PreparedFile, ...]) -> MapOutcome:
        workers = self._executor.tasks_at_once
        context = (self.options, self._plan, self.work, prepared, self._parent)
        return MapStage(*context, self.phases, workers).run()

    def _find_clusters(self, job: Job, residues: int) -> None:
        """Find the cluster of each record, and join clusters (`link_stage/`). With
        --sample-clusters, also find the members of each cluster (`draw_stage/`)."""
        if links := link_tasks(job, self._plan.partitions):
            results = self.phases.run("look up clusters", links, residues)
            self._report.note(join_linked(job, results, self.earlier_clusters(job, results)))
        if draws := draw_tasks(job, self._plan.partitions):
            self.phases.run("find members of clusters", draws, residues)
            merge_members(job, draws)

    def earlier_clusters(self, job: Job, links: Sequence[LinkResult]) -> EarlierClusters:
        """Return the clusters of earlier generations that have new records; empty unless this build
        appends.

        Args:
            links: results of all link tasks.
        """
        return NO_EARLIER

    def _refuse_other_inputs(self, existing: Manifest) -> None:
        """Read all inputs, and compare them with the inputs of the existing dataset.

        Raises:
            DatasetError: the content of an input differs.
        """
        sources = self._plan.sources
        tasks = hash_tasks(self._plan, self.work, every=True)
        results = self.phases.run("compare inputs", tasks, self._plan.input_bytes)
        found = input_entries(sources, tasks, results, [entry.records for entry in existing.inputs])
        if build_digest(self.options, found, self.prepare()) != existing.build:
            raise self._other_inputs()

    def _other_inputs(self) -> DatasetError:
        return DatasetError(
            f"{self._out.where()}: the inputs changed since this dataset was built; {OTHER_OUT}"
        )
