"""Measure time and memory of `--clusters`: read a table of clusters, and look up the ids of
members.

With `--merge`, measure the merge of `--sample-clusters` instead.

    python -m benchmarks.offline.clusters --rows 60000000
    python -m benchmarks.offline.clusters --merge 20000000

The benchmark generates the table with a fixed seed: clusters of 1 to 5 members, in random order, as
plain text. One process reads the table, as in a build. Then several processes
(`--workers`) look up as many random members as the table has rows. Each task looks up
PARTITION_RECORDS members.

With `--merge`, the benchmark writes the results of draw tasks for this number of members. The
clusters have 5 members on average. The benchmark then merges these results in one process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.build.clusters.draw_task import DrawTask
from pipeline.build.clusters.member_files import load_members, merge_members, write_members
from pipeline.build.named_files.clusters.cluster_kernel import text_keys
from pipeline.build.named_files.clusters.cluster_table import open_cluster_table
from pipeline.build.named_files.clusters.read_clusters import prepare_clusters
from pipeline.build.named_files.named_file import NamedFile
from pipeline.build.options import DatasetOptions
from pipeline.build.task_results import WorkFile
from pipeline.build.tasks import Job
from pipeline.storage.local_folder import LocalFolder

PARTITION_RECORDS = 137_000
"""Number of records in one partition of UniRef50. One reduce task packs one partition."""
ID_BYTES = 10


def ids(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return ids such as A012345678, uint8[N, 10]."""
    found = np.empty((numbers.size, ID_BYTES), dtype=np.uint8)
    found[:, 0] = ord("A")
    for column in range(ID_BYTES - 1, 0, -1):
        numbers, digit = np.divmod(numbers, 10)
        found[:, column] = digit + ord("0")
    return found


def write_table(path: Path, rows: int, seed: int = 0) -> None:
    """Write a table with `rows` members in random order."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, rows)
    starts = np.cumsum(sizes) - sizes
    starts = starts[starts < rows]
    representative = np.repeat(starts, np.diff(starts, append=rows)).astype(np.uint32)
    order = rng.permutation(rows).astype(np.uint32)
    with path.open("wb") as file:
        for first in range(0, rows, 1 << 20):
            members = order[first : first + (1 << 20)]
            lines = np.empty((members.size, 2 * ID_BYTES + 2), dtype=np.uint8)
            lines[:, :ID_BYTES] = ids(representative[members].astype(np.int64))
            lines[:, ID_BYTES] = ord("\t")
            lines[:, ID_BYTES + 1 : -1] = ids(members.astype(np.int64))
            lines[:, -1] = ord("\n")
            file.write(lines.tobytes())


def look_up(work: LocalFolder, file: WorkFile, rows: int, group: int) -> tuple[int, float]:
    """Look up one group of random members; return the number of members found, and the CPU seconds.

    The CPU seconds do not include the time to generate the ids.
    """
    rng = np.random.default_rng(group)
    texts = ids(rng.integers(0, rows, PARTITION_RECORDS))
    ends = ID_BYTES * np.arange(1, PARTITION_RECORDS + 1)
    begin = time.process_time()
    keys = np.empty(PARTITION_RECORDS, dtype=np.uint64)
    text_keys(texts.reshape(-1), ends - ID_BYTES, ends, keys)
    found = int(np.count_nonzero(open_cluster_table(file, work).find(keys)))
    return found, time.process_time() - begin


def peak(who: int) -> str:
    return f"{resource.getrusage(who).ru_maxrss / (1 << 20):.2f} GiB"


def prepare_and_report(path: Path, rows: int, work: LocalFolder, results: object) -> None:
    """Read the table, and send the result to the parent process."""
    begin, cpu = time.perf_counter(), time.process_time()
    file = NamedFile(
        option="clusters",
        url=str(path),
        name=path.name,
        bytes=path.stat().st_size,
        fingerprint="",
    )
    done = prepare_clusters(file, "clusters.arrow", work)
    assert done.rows == rows
    print(
        f"read   {time.perf_counter() - begin:6.1f} s, {time.process_time() - cpu:6.1f} CPU s, "
        f"peak {peak(resource.RUSAGE_SELF)}, work file {done.file.bytes / 1e9:.2f} GB"
    )
    results.put(done.file)  # type: ignore[attr-defined] # queues have no public type


def write_draws(work: LocalFolder, members: int) -> list[DrawTask]:
    """Write the results of draw tasks with this number of members in total; return the tasks."""
    job = Job(build="0" * 16, options=DatasetOptions(), out=work, work=work)
    partitions = -(-members // PARTITION_RECORDS)
    rng = np.random.default_rng(0)
    keys = rng.integers(1, 1 << 64, members // 5, dtype=np.uint64)
    tasks = [DrawTask(job=job, partition=p, partitions=partitions) for p in range(partitions)]
    for task in tasks:
        count = min(PARTITION_RECORDS, members - task.partition * PARTITION_RECORDS)
        ordinals = np.arange(count, dtype=np.int64) * partitions + task.partition
        clusters = keys[rng.integers(0, keys.size, count)]
        write_members(task, clusters, ordinals, np.ones(count, dtype=np.uint64))
    return tasks


def measure_merge(work: LocalFolder, members: int) -> None:
    """Merge the results of draw tasks, and read the members of one partition."""
    tasks = write_draws(work, members)
    before, begin, cpu = peak(resource.RUSAGE_SELF), time.perf_counter(), time.process_time()
    merge_members(tasks[0].job, tasks)
    print(
        f"merge  {time.perf_counter() - begin:6.1f} s, {time.process_time() - cpu:6.1f} CPU s, "
        f"peak {peak(resource.RUSAGE_SELF)} (before: {before}), {len(tasks)} partitions, "
        f"work file {(work.size(tasks[0].job.intervals) or 0) / 1e9:.2f} GB"
    )
    begin = time.perf_counter()
    found = load_members(work, tasks[0].job.intervals, 0, len(tasks))
    drawn = np.count_nonzero(found.intervals.drawn(0))
    seconds = time.perf_counter() - begin
    print(f"draw   {1e3 * seconds:6.1f} ms for {drawn} of {found.ordinal.size} members")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--merge", type=int, help="number of members to merge")
    parser.add_argument("--table", type=Path, help="table to read; written if it does not exist")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.merge:
            measure_merge(LocalFolder(folder, folder), options.merge)
            return
        table = options.table or folder / "clusters.tsv"
        if not table.exists():
            write_table(table, options.rows)
        work = LocalFolder(folder, folder)
        results = context.Queue()
        reading = context.Process(
            target=prepare_and_report, args=(table, options.rows, work, results)
        )
        reading.start()
        file = results.get()
        reading.join()
        groups = -(-options.rows // PARTITION_RECORDS)
        begin = time.perf_counter()
        with context.Pool(options.workers) as pool:
            tasks = [(work, file, options.rows, group) for group in range(groups)]
            results_of_groups = pool.starmap(look_up, tasks, chunksize=8)
        assert sum(found for found, _ in results_of_groups) == groups * PARTITION_RECORDS
        print(
            f"join   {time.perf_counter() - begin:6.1f} s (including the time to make the ids), "
            f"{sum(cpu for _, cpu in results_of_groups):6.1f} CPU s, peak of a process "
            f"{peak(resource.RUSAGE_CHILDREN)} (including the mapped table)"
        )


if __name__ == "__main__":
    main()
