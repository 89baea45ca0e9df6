"""Verify the files that a build wrote, before the commit."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.build.phases import Phases
from pipeline.build.task_markers import forget
from pipeline.build.task_results import PackResult
from pipeline.build.tasks import Task
from pipeline.build.verify.check_shards import check_totals, verify_tasks
from pipeline.storage.folder import Folder
from schemas.errors import BuildError
from schemas.manifest import Manifest


def verify_new_files(
    manifest: Manifest,
    variants: range,
    tasks: Sequence[Task[PackResult]],
    parts: Sequence[PackResult],
    work: Folder,
    phases: Phases,
) -> None:
    """Read every new file back, and sync it.

    The tasks that wrote the files did not sync them, because a task would have to wait for the
    disk. A rerun trusts a file only if its hash matches, so a power cut before this function ends
    does no harm.

    Args:
        manifest: manifest that names the new files.
        variants: numbers of the variants that the tasks wrote.
        tasks: all tasks that wrote files.
        parts: results of `tasks`, in the same order.
        work: folder of the tasks' markers.
    Raises:
        BuildError: a file is damaged, or the disk is full. The next run of the build writes a
            damaged file again.
    """
    checks = verify_tasks(manifest, phases.out, work, variants, sync=True)
    found = phases.run("verify", checks, sum(check.bytes for check in checks))
    problems = [
        *check_totals(manifest),
        *(line for result in found for line in result.problems),
    ]
    if not problems:
        return
    wrong = [check for check, result in zip(checks, found, strict=True) if result.problems]
    damaged = {entry.name for check in wrong for entry in check.shards}
    damaged |= {entry.name for check in wrong for entry in check.records}
    for task, part in zip(tasks, parts, strict=True):
        forget(task, part, damaged, phases.out)
    raise BuildError(
        "files of the dataset are damaged, and nothing was committed; run the same command again: "
        "it writes these files again, or names the tasks that do:\n" + "\n".join(problems)
    )
