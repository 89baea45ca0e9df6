"""A build that adds a generation to an existing dataset.

Each build, append or compaction leaves a new state of the dataset, called a generation.
"""

from __future__ import annotations

from pipeline.build.append.build_options import check_exclusions
from pipeline.build.append.open_dataset import OpenDataset
from pipeline.build.build_dataset import Build
from pipeline.build.build_plan import Plan
from pipeline.build.generations.parent import Parent
from pipeline.build.task_results import PreparedFile


class GenerationBuild(Build):
    """A build with the same files of --exclude as the existing dataset.

    existing: manifest of the current generation
    """

    def __init__(self, dataset: OpenDataset, planned: Plan, parent: Parent | None = None) -> None:
        """Prepare a build of the inputs in `planned`.

        Args:
            parent: facts about the current generation if the build appends to it.
        """
        super().__init__(
            dataset.options, planned, dataset.destination, dataset.executor, dataset.report, parent
        )
        self.existing = dataset.existing

    def prepare(self) -> tuple[PreparedFile, ...]:
        """Write the work files of --exclude, and compare them with those of the dataset.

        Raises:
            DatasetError: they differ.
        """
        prepared = super().prepare()
        check_exclusions(prepared, self.existing, self.work, self.options.out)
        return prepared
