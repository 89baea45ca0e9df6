"""Measure time and memory of the driver and the reader for up to billions of records.

    python -m benchmarks.offline.scale

The driver is the process that plans a build and writes its manifest. No records are created or
read. A partition is the share of the records that one reduce task packs. A record's hash determines
its partition. For each number of records, the benchmark takes these steps in a new process, and
prints the peak memory of that process:

- Divide input files of 10 GB each into tasks, write the task list, and pickle each task, as for a
  worker.
- Make up a result of realistic size for each map task and each reduce task. The result of a reduce
  task has histograms, counts, and the manifest entries of one shard per split and of one records/
  file. The sizes of partitions have the multinomial distribution that hashing would produce.
- Write, read and check the manifest.
- Open a reader on the manifest, and compute its bucket in the middle of the third epoch.
"""

from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.build.array_jobs.task_list import TaskList
from pipeline.build.assemble_manifest import manifest_of
from pipeline.build.build_plan import PARTITION_BYTES, Plan
from pipeline.build.destination.local_destination import LocalDestination
from pipeline.build.map_stage.map_results import add_up_map_results, load_map_outcome
from pipeline.build.options import PreprocessOptions
from pipeline.build.split_statistics import SplitStatistics
from pipeline.build.stages import hash_tasks, map_tasks, reduce_tasks, rest_levels
from pipeline.build.task_results import MapResult, PackedVariant, ReduceResult, WorkFile
from pipeline.build.tasks import Job
from pipeline.build.verify.check_shards import check_totals, verify_tasks
from pipeline.inputs.find import PIECE_BYTES, cut, task_bytes
from pipeline.inputs.source import Source
from pipeline.reader import ShardReader
from pipeline.storage.local_folder import LocalFolder
from schemas.manifest import MANIFEST_NAME, Manifest
from schemas.manifest_entries import RecordsEntry, ShardEntry
from schemas.records import Status
from schemas.shard import SPLITS

SIZES = (60_000_000, 200_000_000, 2_000_000_000)
RECORD_BYTES = 431
"""Bytes of FASTA per record, header included, as in Swiss-Prot."""
RESIDUES = 362
FILE_BYTES = 10_000_000_000
KEPT = 0.91
"""Share of the records that the made-up results keep."""
HASH = "0123456789abcdef" * 2


def made_plan(records: int) -> Plan:
    size = records * RECORD_BYTES
    files = -(-size // FILE_BYTES)
    sources = tuple(
        Source(
            url=f"/made/part-{i:05d}.fasta",
            name=f"part-{i:05d}.fasta",
            bytes=size // files,
            fingerprint=HASH,
            format="fasta",
            compression="none",
            piece=PIECE_BYTES,
        )
        for i in range(files)
    )
    each = task_bytes(sources)
    ranges = tuple(
        (i, begin, end) for i, source in enumerate(sources) for begin, end in cut(source, each)
    )
    return Plan(
        sources=sources,
        passed_over=(),
        ranges=ranges,
        hashed=(),
        partitions=-(-size // PARTITION_BYTES),
    )


def made_statistics(
    options: PreprocessOptions, sequences: int, rng: np.random.Generator
) -> SplitStatistics:
    """Return statistics of buckets that hold `sequences` sequences of random, realistic lengths."""
    found = SplitStatistics(capacity=options.capacity, longest=options.longest_span)
    lengths = np.clip(rng.gamma(2.0, 180.0, sequences).astype(np.int64) + 2, 3, options.max_seq_len)
    bucket = np.cumsum(lengths) // (options.capacity - options.max_seq_len)
    count = int(bucket[-1]) + 1
    tokens = np.bincount(bucket, weights=lengths, minlength=count).astype(np.int64)
    found.add_buckets(
        lengths, lengths, bucket, options.capacity - tokens, np.ones(count, dtype=np.int64)
    )
    return found


def made_parts(
    options: PreprocessOptions, partitions: int, records: int
) -> tuple[list[ReduceResult], int]:
    """Return the result of each reduce task, and the number of records in the largest partition."""
    rng = np.random.default_rng(0)
    filled = rng.multinomial(records, np.full(partitions, 1 / partitions))
    some = [
        made_statistics(options, int(share * KEPT * filled.mean()), rng)
        for share in (0.98, 0.01, 0.01)
        for _ in range(16)
    ]
    parts = []
    for partition, count in enumerate(filled.tolist()):
        statistics = {split: some[16 * i + partition % 16] for i, split in enumerate(SPLITS)}
        sizes = {
            split: {"bytes": s.buckets * 17_000, "buckets": s.buckets, "tokens": s.tokens}
            for split, s in statistics.items()
        }
        stem = f"{HASH[:16]}-{partition:05d}"
        packed = PackedVariant(
            rest=WorkFile(
                name=f"rest-of-reduce-{partition:06d}.arrow", bytes=1 << 20, xxh3_128=HASH
            ),
            shards={
                split: (ShardEntry(name=f"{split}/{stem}-0.arrow", xxh3_128=HASH, **size),)
                for split, size in sizes.items()
            },
            statistics=statistics,
            token_counts=(*[0] * 4, *rng.integers(1 << 20, 1 << 22, 26).tolist(), *[0] * 226),
        )
        part = ReduceResult(
            packed=(packed,),
            status={Status.KEPT: int(count * KEPT), Status.DUPLICATE: count - int(count * KEPT)},
            residues_in=count * RESIDUES,
            records=RecordsEntry(
                name=f"records/{stem}.parquet", bytes=40 * count, rows=count, xxh3_128=HASH
            ),
        )
        parts.append(pickle.loads(pickle.dumps(part)))  # results of workers share no objects
    return parts, int(filled.max())


@contextmanager
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    times[name] = time.perf_counter() - started


def simulate(records: int, folder: Path) -> dict[str, Any]:
    options, times, sizes = PreprocessOptions(inputs=("/made",), out=str(folder)), {}, {}
    (folder / ".build").mkdir(parents=True)
    work = LocalFolder(folder / ".build", folder / ".build")
    with timed(times, "task list"):
        plan = made_plan(records)
        listed = TaskList(options=options, plan=plan, destination=LocalDestination(folder))
        sizes["plan, MB"] = len(json.dumps(listed.to_json())) / 1e6
        maps, hashes = map_tasks(plan, options.of_dataset, work), hash_tasks(plan, work)
        job = Job(
            build=HASH[:16],
            options=options.of_dataset,
            out=LocalFolder(folder, work.path),
            work=work,
        )
        reduces = reduce_tasks(job, plan.partitions)
        rests = [task for level in rest_levels(job, reduces) for task in level]
        sizes["a task, bytes"] = max(
            len(pickle.dumps(task)) for task in (*maps, *hashes, *reduces, *rests)
        )
    with timed(times, "map results"):
        per = records // len(maps)
        spill = WorkFile(name=maps[0].spill, bytes=0, xxh3_128=HASH)
        pieces = [(HASH,) * -((task.begin - task.end) // PIECE_BYTES) for task in maps]
        results = [
            MapResult(spill=spill, records=per, residues=per * RESIDUES, unknown=0, pieces=piece)
            for piece in pieces
        ]
        mapped = add_up_map_results(options, plan, maps, hashes, results)
        mapped.save(job)
        sizes["size of the map results, MB"] = (work.path / job.mapped).stat().st_size / 1e6
        load_map_outcome(work, job.mapped)
    with timed(times, "making up results (for the simulation only)"):
        parts, fullest = made_parts(options, plan.partitions, records)
    with timed(times, "manifest"):
        manifest = manifest_of(options, HASH[:16], mapped.inputs, parts)
        assert not check_totals(manifest)
        sizes["verify tasks"] = len(verify_tasks(manifest, job.out, work))
        (folder / MANIFEST_NAME).write_text(manifest.to_json())
        sizes["manifest, MB"] = (folder / MANIFEST_NAME).stat().st_size / 1e6
    with timed(times, "reader, to a bucket of its third epoch"):
        Manifest.from_json((folder / MANIFEST_NAME).read_bytes(), where="made")
        with ShardReader(folder, prefetch=0) as reader:
            reader.number_at(2 * len(reader) + len(reader) // 2)
    counts = {"map": len(maps), "hash": len(hashes), "reduce": len(reduces), "rest": len(rests)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    fit = {"fullest partition, records": fullest, "mean": records // plan.partitions}
    return {
        "records": records,
        "fasta, GB": records * RECORD_BYTES / 1e9,
        "tasks": counts,
        **fit,
        **sizes,
        "seconds": times,
        "peak memory, MB": peak / 1e6,
    }


def main() -> None:
    if len(sys.argv) > 1:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(simulate(int(sys.argv[1]), Path(folder) / "made")))
        return
    for records in SIZES:
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.offline.scale", str(records)],
            check=True,
            capture_output=True,
            text=True,
        )
        found = json.loads(done.stdout)
        print(f"{records:,} records, {time.perf_counter() - started:.1f} s in all:")
        for name, value in found.items():
            number = "{:,.1f}" if isinstance(value, float) else "{:,}"
            shown = json.dumps(value) if isinstance(value, dict) else number.format(value)
            print(f"    {name}: {shown}")


if __name__ == "__main__":
    main()
