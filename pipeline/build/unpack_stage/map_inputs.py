"""The map stage: run the tasks that read the inputs, and add up their results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.build.build_plan import Plan
from pipeline.build.generations.parent import Parent
from pipeline.build.map_stage.hash_task import HashTask
from pipeline.build.map_stage.map_results import MapOutcome, add_up_map_results, input_warnings
from pipeline.build.options import PreprocessOptions
from pipeline.build.phases import Phases
from pipeline.build.progress.timeline import Span, this_worker
from pipeline.build.stages import hash_tasks, map_tasks
from pipeline.build.task_markers import believed
from pipeline.build.task_results import HashResult, MapResult, PreparedFile
from pipeline.build.tasks import MapTask, Task
from pipeline.build.unpack_stage.large_archives import large_archives
from pipeline.build.unpack_stage.sections import section_tasks
from pipeline.executors.processes import cores
from pipeline.inputs.find import every_range
from pipeline.storage.folder import Folder

_Results = Sequence[MapResult | HashResult]


@dataclass(frozen=True, slots=True)
class MapStage:
    """The map stage of a build.

    work: folder for intermediate files
    prepared: files that options name
    parent: the generation to which the build appends; None for a new dataset
    workers: number of worker processes that accept tasks while they run; 0 if the executor does not
        accept such tasks
    """

    options: PreprocessOptions
    planned: Plan
    work: Folder
    prepared: tuple[PreparedFile, ...]
    parent: Parent | None
    phases: Phases
    workers: int

    def run(self) -> MapOutcome:
        """Read all inputs.

        Raises:
            InputError: an input cannot be read, or breaks a rule.
        """
        planned = self.planned
        whole = large_archives(planned, self.work, self._threads)
        every = map_tasks(
            planned,
            self.options.of_dataset,
            self.work,
            self.options.allowed,
            prepared=self.prepared,
        )
        maps = [
            task for task, (i, _, _) in zip(every, planned.ranges, strict=True) if i not in whole
        ]
        archives = [
            task for task, (i, _, _) in zip(every, planned.ranges, strict=True) if i in whole
        ]
        # map tasks of sections do not see the bytes of the archive, so hash tasks hash them
        of_archives = [each for each in every_range(planned.sources) if each[0] in whole]
        hashes = hash_tasks(replace(planned, hashed=(*planned.hashed, *of_archives)), self.work)
        hashes = [replace(task, counted=task.source.format != "fasta") for task in hashes]
        # tables are read twice: by map tasks and by hash tasks
        hashed = sum(task.end - task.begin for task in hashes if task.counted)
        tasks: list[Task[MapResult | HashResult]] = [*maps, *hashes]
        sections: list[MapTask] = []
        results = self.phases.run(
            "read, tokenize, partition",
            tasks,
            planned.input_bytes + hashed,
            more=self._sections(archives, sections) if archives else None,
        )
        return self._added_up([*maps, *sections], hashes, results)

    def _sections(
        self, archives: Sequence[MapTask], made: list[MapTask]
    ) -> Iterator[MapTask | None]:
        """Yield the tasks of each archive's sections, and add them to `made`."""
        out = self.phases.out
        for archive in archives:
            began, cpu = time.time(), time.process_time()
            tasks = section_tasks(
                archive,
                self._threads,
                lambda task: believed(task, out) is not None,
                self.phases.report.advance,
            )
            for task in tasks:
                if task is not None:
                    made.append(task)
                yield task
            span = Span(this_worker(), began, time.time(), time.process_time() - cpu)
            self.phases.times[-1].tasks.append((f"decompress {archive.source.name}", span))

    @property
    def _threads(self) -> int:
        """Number of cores that workers use: of these, decompression may use all."""
        return min(self.workers, cores())

    def _added_up(
        self, maps: Sequence[MapTask], hashes: Sequence[HashTask], results: _Results
    ) -> MapOutcome:
        """Add up the results: of the map tasks without sections, of hash tasks, then of sections.

        Args:
            maps: tasks without sections, then those with sections.
        """
        plain = sum(task.section is None for task in maps)
        of_hashes = results[plain : plain + len(hashes)]
        of_maps = [*results[:plain], *results[plain + len(hashes) :]]
        # sections have the index of their archive's task, and are in the order of the text
        in_order = sorted(zip(maps, of_maps, strict=True), key=lambda each: each[0].index)
        sources = [self.planned.ranges[task.index][0] for task, _ in in_order]
        planned = replace(
            self.planned,
            ranges=tuple(
                (source, task.begin, task.end)
                for source, (task, _) in zip(sources, in_order, strict=True)
            ),
        )
        ordered = [*(result for _, result in in_order), *of_hashes]
        outcome = add_up_map_results(
            self.options,
            planned,
            [task for task, _ in in_order],
            hashes,
            ordered,
            self.prepared,
            self.parent,
        )
        for line in input_warnings(self.options, planned, ordered, self.prepared):
            self.phases.report.note(line)
        return outcome
