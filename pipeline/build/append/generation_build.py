"""A build that adds a generation to an existing dataset.

Each build, append or compaction leaves a new state of the dataset, called a generation.
"""

from __future__ import annotations

from pipeline.build.append.build_options import check_named_files
from pipeline.build.append.open_dataset import OpenDataset
from pipeline.build.build_dataset import Build
from pipeline.build.build_plan import Plan
from pipeline.build.generations.parent import Parent
from pipeline.build.task_results import PreparedFile


class GenerationBuild(Build):
    """A build that checks the files that its options name. The files must match those of the
    existing dataset: for example, the files of --exclude must be the same.

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
        """Write a work file for each file that an option names, and check that the files match
        those of the dataset.

        Raises:
            DatasetError: a file of --exclude or a column of --metadata differs.
        """
        prepared = super().prepare()
        check_named_files(prepared, self.existing, self.work, self.options.out)
        return prepared
