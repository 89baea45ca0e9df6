"""Inputs with many copies of one sequence. A reduce task holds only unique sequences in memory.

A reduce task reads its partition in runs: groups of consecutive records that fit into memory. The
number of runs does not change the bytes of the dataset.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.executors.worker_count import WORKER_BYTES
from schemas.manifest import Manifest
from tests.helpers.data.corpus import digest, fasta, made_records, read_manifest
from tests.helpers.processes.command_line import PIECE_BYTES, REPO, environment

LONG = "THDPACK_LONG" in os.environ
BuildHere = Callable[..., Manifest]

PROGRAM = """
import sys
from pathlib import Path
import pipeline.build.build_dataset, pipeline.build.build_plan
import pipeline.build.reduce_stage.spilled_records, pipeline.build.reduce_stage.write_records
import pipeline.build.spill.spill_files, pipeline.inputs.find
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import reporter
from tests.helpers.processes.command_line import without_workers
without_workers()
size = int(sys.argv[3])
if size:
    find = pipeline.inputs.find
    find.TASK_BYTES = find.PIECE_BYTES = size
    find.FEWEST_TASKS = 1
    from pipeline.build.reduce_stage import spilled_records
    spilled_records.WHOLE_BYTES = spilled_records.RUN_BYTES = size
    pipeline.build.spill.spilled_partition.WINDOW_BYTES = size
    pipeline.build.reduce_stage.write_records._ROW_GROUP = size // 256
with reporter(as_json=True) as report:
    options = PreprocessOptions(inputs=(sys.argv[1],), out=sys.argv[2])
    pipeline.build.build_dataset.build(options, report)
# The field ru_maxrss would be at least the memory of the process that started this one.
lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(lines["VmHWM"].split()[0]) << 10)
"""
LONGEST_SECONDS = 1200


def peak_memory(source: Path, out: Path, size: int = 0) -> int:
    """Run a build whose driver is also the worker; return the process's peak memory in bytes.

    size: size in bytes of map tasks and of runs; 0 means the default
    """
    words = [sys.executable, "-c", PROGRAM, str(source), str(out), str(size)]
    done = subprocess.run(
        words,
        cwd=REPO,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def write_copies(path: Path, copies: int, *, id_bytes: int = 0) -> None:
    """Write FASTA with `copies` copies of one protein between other proteins."""
    others = fasta(made_records(50))
    residues = ("MKTAYIAKQR" * 30).encode()
    with path.open("wb") as file:
        file.write(others)
        for first in range(0, copies, 1000):
            count = min(1000, copies - first)
            file.write(
                b"".join(
                    b">copy%d%s\n%s\n" % (first + i, b"x" * id_bytes, residues)
                    for i in range(count)
                )
            )
        file.write(others)


def test_copies_of_one_sequence_take_little_memory(tmp_path: Path) -> None:
    """200,000 additional copies need less than half of the 60 MB that their residues would take.

    Measured: 0 to 24 MB. The allocator's reserves differ by up to 15 MB between equal builds.
    """
    peaks = []
    for copies in (40_000, 240_000):
        write_copies(tmp_path / "copies.fasta", copies)
        peaks.append(peak_memory(tmp_path / "copies.fasta", tmp_path / str(copies), 2 << 20))
        statuses = read_manifest(tmp_path / str(copies)).records_by_status
        assert sum(statuses.values()) == copies + 100
        assert statuses["duplicate"] >= copies - 1
    assert peaks[1] - peaks[0] < 30_000_000, peaks


@pytest.mark.skipif(not LONG, reason="takes minutes and 10 GB of disk; set THDPACK_LONG=1")
@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.parametrize(("copies", "id_bytes"), [(10_000_000, 0), (450_000, 10_000)])
def test_ten_million_copies_or_four_gigabytes_of_ids_fit_into_a_workers_memory(
    tmp_path: Path, copies: int, id_bytes: int
) -> None:
    source, out = tmp_path / "copies.fasta", tmp_path / "out"
    write_copies(source, copies, id_bytes=id_bytes)
    assert peak_memory(source, out) < 1.25 * WORKER_BYTES  # the process is both driver and worker
    manifest = read_manifest(out)
    assert manifest.records_by_status["duplicate"] >= copies - 1
    assert sum(shard.buckets for shards in manifest.shards.values() for shard in shards) < 10


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dedup": "none"},
        {"long": "split"},
        {"long": "drop"},
        {"on_invalid": "skip", "min_residues": 30},
    ],
)
@pytest.mark.parametrize("grouped_from", [2, 512])
def test_a_partition_gives_the_same_bytes_whether_it_is_read_in_one_run_or_in_many(
    build_here: BuildHere,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, object],
    grouped_from: int,
) -> None:
    (tmp_path / "made.fasta").write_bytes(fasta(made_records(900, longest=900)))
    monkeypatch.setattr("pipeline.inputs.find.TASK_BYTES", 60_000)
    monkeypatch.setattr("pipeline.inputs.find.PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr("pipeline.inputs.find.FEWEST_TASKS", 1)
    monkeypatch.setattr("pipeline.build.build_plan.PARTITION_BYTES", 130_000)
    monkeypatch.setattr("pipeline.build.reduce_stage.write_records._ROW_GROUP", 64)
    shape = {
        "capacity": 1024,
        "max_seq_len": 512,
        "split": "train=0.7,valid=0.2,test=0.1",
        **options,
    }
    build_here(tmp_path / "made.fasta", tmp_path / "whole", **shape)
    monkeypatch.setattr("pipeline.build.spill.spill_files.GROUPED_FROM", grouped_from)
    monkeypatch.setattr("pipeline.build.spill.spilled_partition.WINDOW_BYTES", 7_000)
    monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 10_000)
    monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 9_000)
    build_here(tmp_path / "made.fasta", tmp_path / "runs", **shape)
    assert digest(tmp_path / "whole") == digest(tmp_path / "runs")
