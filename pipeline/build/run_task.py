"""Run a task, unless an earlier run finished it. `_run` chooses the function for each task type."""

from __future__ import annotations

import time
from typing import Any

from pipeline.build.clusters.draw_task import DrawTask
from pipeline.build.clusters.earlier_task import EarlierTask
from pipeline.build.clusters.link_task import LinkTask
from pipeline.build.draw_stage.draw_partition import draw_partition
from pipeline.build.hash_index.index_task import IndexTask, write_index_run
from pipeline.build.link_stage.earlier_clusters import find_earlier
from pipeline.build.link_stage.link_partition import link_partition
from pipeline.build.map_stage.hash_task import HashTask
from pipeline.build.map_stage.partition_records import partition_records
from pipeline.build.named_files.prepare import prepare
from pipeline.build.named_files.prepare_task import PrepareTask
from pipeline.build.progress.timeline import Span, this_worker
from pipeline.build.reduce_stage.reduce_partition import pack_rests, reduce_partition
from pipeline.build.retire.retire_task import RetireTask, find_listed
from pipeline.build.search_stage.cluster_records import cluster_records
from pipeline.build.search_stage.search_exclusions import search_exclusions
from pipeline.build.search_stage.search_tasks import ClusterTask, SearchTask
from pipeline.build.task_markers import Outcome, believed, leave_marker
from pipeline.build.task_results import HashResult
from pipeline.build.tasks import MapTask, OnBytes, ReduceTask, RestTask, Result, Task
from pipeline.build.verify.check_shards import check_files
from pipeline.build.verify.verify_task import VerifyTask
from pipeline.inputs.content_hash import hash_range
from pipeline.inputs.find import unchanged
from pipeline.inputs.named.ignore import with_ignore
from pipeline.storage.folder import Folder
from schemas.errors import BuildError, InputError


def run_once(
    task: Task[Result], on_bytes: OnBytes, *, out: Folder, durable: bool = False
) -> Outcome[Result]:
    """Run a task, unless its marker (a JSON file that a finished task leaves) and its outputs show
    that it has finished.

    Args:
        out: the dataset's folder; names of shards and records/ files are relative to this folder.
        durable: True to sync the task's files before its marker is written. This is needed if
            another machine uses the result, because that machine checks only the sizes of the
            files (see `task_markers.finished`).
    Raises:
        ThdpackError: the task failed.
        BuildError: a file of an earlier task is gone.
        InputError: the input has changed since the build was planned.
    """
    began, cpu = time.time(), time.process_time()

    def span() -> Span:
        return Span(this_worker(), began, time.time(), time.process_time() - cpu)

    earlier = believed(task, out)
    if earlier is not None:
        return Outcome(earlier, skipped=True, span=span())
    try:
        done = _run(task, on_bytes)
    except InputError as error:
        if not isinstance(task, MapTask):
            raise
        raise with_ignore(error, task.source.url, found=task.source.found) from error
    except FileNotFoundError as error:
        raise BuildError(
            f"{task.name}: {error.filename} is gone, or this machine cannot access it; "
            "run the same command to resume"
        ) from error
    assert isinstance(done, task.result_type)
    if isinstance(task, MapTask | HashTask) and not unchanged(task.source):
        raise InputError(
            "changed while it was read, or since the build was planned; run the same command again",
            source=task.source.url,
        )
    leave_marker(task, done, out, durable=durable)
    if isinstance(task, MapTask) and task.section is not None:
        task.work.remove(task.section_file)
    return Outcome(done, skipped=False, span=span())


def _uncounted(number: int) -> None:
    """Ignore a number of bytes."""


def _run(task: Task[Any], on_bytes: OnBytes) -> object:
    """Call the function for a task's type.

    Raises:
        ThdpackError: an input, the disk or the data has a fault.
    """
    match task:
        case PrepareTask():
            return prepare(task.file, task.prepared, task.work)
        case MapTask():
            return partition_records(task, on_bytes)
        case HashTask():
            count = on_bytes if task.counted else _uncounted
            return HashResult(pieces=tuple(hash_range(task.source, task.begin, task.end, count)))
        case ClusterTask():
            return cluster_records(task, on_bytes)
        case LinkTask():
            return link_partition(task, on_bytes)
        case EarlierTask():
            return find_earlier(task, on_bytes)
        case DrawTask():
            return draw_partition(task, on_bytes)
        case SearchTask():
            return search_exclusions(task, on_bytes)
        case ReduceTask():
            return reduce_partition(task, on_bytes)
        case RestTask():
            return pack_rests(task, on_bytes)
        case IndexTask():
            return write_index_run(task)
        case RetireTask():
            return find_listed(task, on_bytes)
        case VerifyTask():
            return check_files(task, on_bytes)
    raise AssertionError(f"no function runs {task!r}")
