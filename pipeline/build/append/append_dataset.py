"""`thdpack append`: build shards of the new records, and commit a new generation.

1. Skip inputs whose content the dataset already has (`new_inputs.py`).
2. Save the manifest of the current generation under its number, in generations/.
3. With --retire, find the records to retire (`find_retired.py`).
4. Bring the hash index (the sequence hashes of the kept records) up to date (`update_index.py`).
5. Build the new records as `thdpack preprocess` does. A reduce task also marks a record as a
   duplicate if the index has its sequence. The ordinals (record numbers) continue those of the
   dataset.
6. Merge the manifest of the new records with that of the current generation, and commit it. Without
   new records, commit the manifest of the current generation with one more file of retired/.

The commit replaces manifest.json. Until then, readers see the current generation. After a crash,
run the same command. It resumes the append, or finds that all inputs were already appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pipeline.build.append.find_retired import Retirement, find_retired, records_before
from pipeline.build.append.generation_build import GenerationBuild
from pipeline.build.append.new_inputs import NewInputs, new_inputs
from pipeline.build.append.open_dataset import OpenDataset, open_dataset
from pipeline.build.append.options import AppendOptions
from pipeline.build.append.retire_records import retiring_manifest, with_retired
from pipeline.build.append.update_index import update_index
from pipeline.build.assemble_manifest import Built
from pipeline.build.build_plan import Plan
from pipeline.build.clusters.earlier_task import EarlierClusters, EarlierTask
from pipeline.build.generations.merge_manifests import merged
from pipeline.build.generations.parent import Parent
from pipeline.build.generations.read_records import task_groups
from pipeline.build.hash_index.index_runs import IndexRun
from pipeline.build.hash_index.index_state import STATE
from pipeline.build.progress.reporter import Reporter
from pipeline.build.task_results import LinkResult
from pipeline.build.tasks import Job
from pipeline.storage.folder import Folder
from schemas.errors import DamagedIndexError, LostCommitError
from schemas.manifest import Manifest

_MOST_RACES: Final = 5
"""Maximum number of retries of an append on an object store. The append retries if another build
has committed first."""
_ATTEMPTS: Final = 2
"""Maximum number of attempts to read the hash index. A damaged index is rebuilt before the next
attempt."""


def append(options: AppendOptions, report: Reporter, *, discard_refused: bool = False) -> Built:
    """Append records to a dataset, or retire records. If nothing is new, change nothing.

    Args:
        discard_refused: see `open_dataset`.
    Raises:
        InputError: an input cannot be read or breaks a rule.
        DatasetError: the dataset is missing or damaged, or append does not support its options.
        BuildError: for example, the disk is full, a worker was killed, or another build is running.
    """
    for _ in range(_MOST_RACES):
        try:
            return _append(options, report, discard_refused)
        except LostCommitError:
            report.note("another build committed a generation meanwhile: appending to that one")
    return _append(options, report, discard_refused)


def _append(options: AppendOptions, report: Reporter, discard_refused: bool) -> Built:
    with open_dataset(options, report, discard_refused=discard_refused) as dataset:
        work = dataset.work(dataset.planned)
        found = new_inputs(dataset.planned, dataset.existing, work, dataset.phases)
        for line in found.notes:
            report.note(line)
        if found.plan.sources:
            work = dataset.work(found.plan)
        dataset.note_other_builds(found.plan)
        retirement = _retirement(options, dataset, found, work)
        if found.plan.sources:
            dataset.save_manifest()
            built = _with_sound_index(dataset, found.plan, retirement)
        elif retirement is not None and retirement.ordinal.size:
            dataset.save_manifest()
            built = _retire(options, dataset, retirement, work)
        else:
            dataset.destination.clear(dataset.existing, work)
            built = Built(manifest=dataset.existing, fresh=False)
        return replace(
            built,
            skipped=dataset.planned.passed_over,
            known=found.known,
            retired=None if retirement is None else retirement.counts,
        )


def _retirement(
    options: AppendOptions, dataset: OpenDataset, found: NewInputs, work: Folder
) -> Retirement | None:
    """Find the records to retire; None without --retire.

    Raises:
        InputError: the list of ids cannot be read.
        DatasetError: a file of records/ or retired/ is missing or damaged.
    """
    if options.retire is None:
        return None
    existing = dataset.existing
    known = () if found.plan.sources else found.known.values()
    last, before = records_before(existing, known)
    if last < existing.generation:
        which = f"only to records up to generation {last}" if last else "to no records"
        dataset.report.note(
            f"generation {last + 1} has these inputs, so --retire applies {which}; to "
            "retire later records, give no inputs"
        )
    return find_retired(options.retire, existing, before, work, dataset.phases)


def _retire(
    options: AppendOptions, dataset: OpenDataset, retirement: Retirement, work: Folder
) -> Built:
    """Commit a generation without new records."""
    manifest = retiring_manifest(dataset.existing, retirement, options.source_release, dataset.out)
    dataset.executor.end()
    dataset.destination.commit(manifest)
    dataset.destination.clear(manifest, work)
    return Built(manifest=manifest, fresh=True)


def _with_sound_index(dataset: OpenDataset, planned: Plan, retirement: Retirement | None) -> Built:
    """Build and commit a generation. If the hash index is damaged, rebuild it and try again."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _build(dataset, planned, retirement)
        except DamagedIndexError as error:
            if attempt == _ATTEMPTS:
                raise
            dataset.report.note(f"{error.path} is missing or damaged: the index is rebuilt")
            dataset.out.remove(STATE)
    raise AssertionError("unreachable")


def _build(dataset: OpenDataset, planned: Plan, retirement: Retirement | None) -> Built:
    existing = dataset.existing
    index: tuple[IndexRun, ...] = ()
    if existing.options["dedup"] != "none":
        index = update_index(existing, dataset.out, dataset.work(planned), dataset.phases)
    parent = Parent(
        digest=existing.digest,
        records=sum(existing.records_by_status.values()),
        index=index,
        retired="" if retirement is None else retirement.digest,
    )
    return _AppendBuild(dataset, planned, parent, retirement).run(None)


class _AppendBuild(GenerationBuild):
    """A build whose manifest is merged with that of an existing generation."""

    def __init__(
        self, dataset: OpenDataset, planned: Plan, parent: Parent, retirement: Retirement | None
    ) -> None:
        """
        Args:
            retirement: records that this append retires; None without --retire.
        """
        super().__init__(dataset, planned, parent)
        self._retirement = retirement

    def earlier_clusters(self, job: Job, links: Sequence[LinkResult]) -> EarlierClusters:
        """Search records/ for records whose clusters have new records.

        Raises:
            DatasetError: a records/ file is missing, damaged or cannot be read.
        """
        tasks = [
            EarlierTask(
                records=group,
                links=tuple(links),
                table=job.clusters.file,
                out=self._out,
                work=self.work,
            )
            for group in task_groups(self.existing.records)
        ]
        size = sum(entry.bytes for entry in self.existing.records)
        return EarlierClusters.together(self.phases.run("find earlier clusters", tasks, size))

    def whole_manifest(self, manifest: Manifest) -> Manifest:
        whole = merged(self.existing, manifest)
        if self._retirement is None:
            return whole
        return with_retired(whole, self._retirement, self._out)
