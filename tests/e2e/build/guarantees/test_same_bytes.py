"""A build has the same bytes with any number of workers and for any layout of tasks and spills.
A changed input or option gives another dataset.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.manifest import Manifest
from tests.helpers.data.corpus import digest
from tests.helpers.data.small_builds import SMALL, build
from tests.helpers.processes.command_line import PIECE_BYTES, Run

LONG = "THDPACK_LONG" in os.environ


@pytest.mark.parametrize("compression", ["none", "zstd"] if LONG else ["none"])
def test_same_inputs_and_options_give_the_same_bytes_with_any_number_of_workers(
    run: Run,
    run_process: Run,
    tmp_path: Path,
    corpus: Path,
    compression: str,
) -> None:
    """The first build runs in this process, the others in worker processes."""
    sizes = {"task_bytes": 25_000, "partition_bytes": 30_000}
    build(run, corpus, tmp_path / "here", "--compression", compression, **sizes)
    expected = digest(tmp_path / "here")
    assert len(expected) > 10
    for workers in (2, 5):
        options = ("--workers", workers, "--compression", compression)
        build(run_process, corpus, tmp_path / str(workers), *options, **sizes)
        assert digest(tmp_path / str(workers)) == expected


def test_the_size_of_tasks_does_not_change_the_bytes(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    for name, task_bytes in (("whole", 1 << 30), ("cut", 7_001)):
        build(run, corpus, tmp_path / name, task_bytes=task_bytes, partition_bytes=50_000)
    assert digest(tmp_path / "whole") == digest(tmp_path / "cut")


@pytest.mark.parametrize("task_bytes", [25_000, 1 << 30])
def test_the_layout_of_spills_does_not_change_the_bytes(
    build_here: Callable[..., Manifest],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    corpus: Path,
    task_bytes: int,
) -> None:
    """A map task writes one spill. If the build has at least GROUPED_FROM partitions, the spill is
    grouped by partition. Otherwise, its blocks are in the order in which records were parsed.

    The inputs are so small that some partitions of a spill are empty.
    """
    monkeypatch.setattr("pipeline.build.build_plan.PARTITION_BYTES", 10_000)
    monkeypatch.setattr("pipeline.inputs.find.TASK_BYTES", task_bytes)
    monkeypatch.setattr("pipeline.inputs.find.PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr("pipeline.inputs.find.FEWEST_TASKS", 1)
    build_here(corpus, tmp_path / "blocks", capacity=2048, max_seq_len=512)
    monkeypatch.setattr("pipeline.build.spill.spill_files.GROUPED_FROM", 4)
    build_here(corpus, tmp_path / "grouped", capacity=2048, max_seq_len=512)
    assert digest(tmp_path / "blocks") == digest(tmp_path / "grouped")


def test_the_folder_of_the_inputs_does_not_change_the_bytes(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    other = tmp_path / "elsewhere" / "deep"
    other.mkdir(parents=True)
    (other / corpus.name).write_bytes(corpus.read_bytes())
    build(run, corpus, tmp_path / "a")
    build(run, other / corpus.name, tmp_path / "b")
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    manifest = (tmp_path / "a" / "manifest.json").read_text()
    assert str(tmp_path) not in manifest


def test_the_same_build_is_not_repeated_and_a_changed_build_needs_overwrite(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    out = tmp_path / "out"
    build(run, corpus, out)
    before = digest(out)
    assert "already built" in build(run, corpus, out)
    refused = run("preprocess", corpus, "--out", out, *SMALL, "--seed", 1)
    assert refused.returncode == 2
    assert "--seed 0 → 1" in refused.stderr
    assert "--overwrite" in refused.stderr
    assert digest(out) == before
    text = corpus.read_bytes()
    corpus.write_bytes(text.replace(b"made7 ", b"made8 "))  # the file keeps its size
    changed = run("preprocess", corpus, "--out", out, *SMALL)
    assert changed.returncode == 1
    assert "inputs changed" in changed.stderr
    assert digest(out) == before
    build(run, corpus, out, "--overwrite")
    after = digest(out)
    assert after != before
    assert not set(after) & set(before) - {"manifest.json"}, (
        "no shard of the replaced dataset may remain"
    )


def test_changes_that_keep_the_modification_time_are_noticed(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    """A resumed build reads a changed input again, even if the input's size and modification time
    are unchanged."""
    out, sizes = tmp_path / "out", {"task_bytes": 25_000, "partition_bytes": 30_000}
    stat = corpus.stat()
    corpus_before = corpus.read_bytes()
    broken = tmp_path / "zz_broken.fasta"
    broken.write_bytes(b"no header\n")
    failed = run("preprocess", corpus, broken, "--out", out, *SMALL, **sizes)
    assert failed.returncode == 1
    broken.write_bytes(b">ok\nMKT\n")
    changed = corpus_before.replace(b">made3 ", b">made4 ")
    corpus.write_bytes(changed)
    os.utime(corpus, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    build(run, [corpus, broken], out, **sizes)
    build(run, [corpus, broken], tmp_path / "fresh", **sizes)
    assert digest(out) == digest(tmp_path / "fresh")
