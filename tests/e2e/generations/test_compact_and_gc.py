"""`thdpack compact` gives the bytes of one build. `thdpack gc` removes only unneeded files.

Each build, append or compaction leaves a new state of the dataset, called a generation.
"""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.reader import ShardReader
from tests.helpers.data.corpus import digest, read_manifest
from tests.helpers.data.damaged_datasets import deep, shallow
from tests.helpers.data.growth import OPTIONS, SIZES, grow, write_inputs
from tests.helpers.processes.command_line import Run, use_few_small_tasks

WEEK = 7 * 86_400


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_few_small_tasks(monkeypatch)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_inputs(tmp_path_factory.mktemp("inputs"), 4)


def without_chain(dataset: Path) -> dict[str, Any]:
    """Return the manifest without the keys that name the generation."""
    found: dict[str, Any] = json.loads((dataset / "manifest.json").read_text())
    return {
        name: value
        for name, value in found.items()
        if name not in ("generation", "parent", "history", "digest")
    }


def data_files(files: dict[str, str]) -> dict[str, str]:
    """Return the shards and records/ files among the files of a dataset."""
    folders = ("train/", "valid/", "test/", "records/")
    return {name: value for name, value in files.items() if name.startswith(folders)}


def make_old(dataset: Path, seconds: float) -> None:
    """Set the times of all files of a dataset to `seconds` ago."""
    then = time.time() - seconds
    for path in dataset.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


@pytest.mark.parametrize("long", ["truncate", "crop"])
@pytest.mark.parametrize("steps", [[1, 1, 1, 1], [3, 1]])
def test_a_compacted_dataset_has_the_bytes_of_one_build(
    run: Run, inputs: list[Path], tmp_path: Path, steps: list[int], long: str
) -> None:
    options = (*OPTIONS, "--variants", 2, "--long", long)
    whole = grow(run, inputs, tmp_path / "whole", [len(inputs)], *options)
    out = grow(run, inputs, tmp_path / "out", steps, *options)
    run("compact", out, *reversed(inputs), **SIZES)
    manifest = read_manifest(out)
    assert manifest.generation == len(manifest.history) + 1 == len(steps) + 1
    assert without_chain(out) == without_chain(whole)
    named = {entry.name for entry in manifest.files()}
    ours, theirs = digest(out), digest(whole)
    assert {name: ours[name] for name in named} == data_files(theirs)
    assert shallow(out) == deep(out) == []
    done = run("compact", out, *inputs, **SIZES)
    assert "all files of the dataset come from one build; nothing to do" in done.stdout


def test_a_compacted_dataset_grows_further(run: Run, inputs: list[Path], tmp_path: Path) -> None:
    whole = grow(run, inputs, tmp_path / "whole", [4], *OPTIONS)
    out = grow(run, inputs[:3], tmp_path / "out", [2, 1], *OPTIONS)
    run("compact", out, *inputs[:3], **SIZES)
    run("append", out, inputs[3], **SIZES)
    assert read_manifest(out).records_by_status == read_manifest(whole).records_by_status
    assert deep(out) == []


def test_compact_refuses_other_inputs(run: Run, inputs: list[Path], tmp_path: Path) -> None:
    out = grow(run, inputs[:3], tmp_path / "out", [2, 1], *OPTIONS)
    before = digest(out)
    done = run("compact", out, *inputs[:2], **SIZES)
    assert done.returncode == 1
    assert "1 input of the dataset not given: 2.fasta: compact reads" in done.stderr
    done = run("compact", out, *inputs, **SIZES)
    assert done.returncode == 1
    assert "3.fasta: not in the dataset: run `thdpack append` first" in done.stderr
    assert digest(out) == before
    assert run("compact", out, *inputs[:3], **SIZES).returncode == 0
    before = digest(out)
    for given, said in (
        (inputs[:2], "1 input of the dataset not given, judged by size: 2.fasta"),
        (inputs, "not in the dataset, judged by size: 3.fasta"),
    ):
        done = run("compact", out, *given, **SIZES)
        assert (done.returncode, done.stderr) == (1, f"thdpack compact: {said}\n")
    assert digest(out) == before


def test_gc_lists_by_default_and_removes_only_with_delete(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    out = grow(run, inputs, tmp_path / "out", [2, 1, 1], *OPTIONS)
    run("compact", out, *inputs, **SIZES)
    make_old(out, WEEK + 60)
    before = digest(out)
    done = run("gc", out)
    assert "would remove" in done.stdout
    assert digest(out) == before
    assert "removed" in run("gc", out, "--delete").stdout
    named = {entry.name for entry in read_manifest(out).files()}
    after = set(digest(out))
    assert {name for name in after if not name.startswith("index/")} == {*named, "manifest.json"}
    assert shallow(out) == deep(out) == []
    assert "nothing to remove" in run("gc", out, "--delete").stdout


def test_gc_keeps_recent_generations_and_recent_files(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    out = grow(run, inputs[:3], tmp_path / "out", [2, 1], *OPTIONS)
    run("compact", out, *inputs[:3], **SIZES)
    before = digest(out)
    stray = out / "train" / f"{'0' * 16}-00000-0.arrow"
    stray.write_bytes(b"a build that is still running wrote this file")
    done = json.loads(run("gc", out, "--delete", "--json").stdout)
    assert done["kept_generations"] == [1, 2, 3]
    assert (done["files"], done["too_young"]) == ({}, 2)  # the other file: a run of the index
    stray.unlink()
    assert digest(out) == before
    make_old(out, WEEK + 60)
    run("gc", out, "--delete", "--keep", "2")
    left = digest(out)
    assert {name for name in left if name.startswith("generations/")} == {"generations/2.json"}
    assert data_files(left) == data_files(before)  # generation 2 has all files of generation 1


def test_gc_never_removes_files_that_builds_did_not_write(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    out = grow(run, inputs[:2], tmp_path / "out", [1, 1], *OPTIONS)
    own = ["notes.txt", "train/notes.txt", "records/mine.parquet", "index/readme.md"]
    for name in own:
        (out / name).write_text("mine")
    make_old(out, WEEK + 60)
    run("gc", out, "--delete")
    assert all((out / name).read_text() == "mine" for name in own)


def test_gc_removes_the_intermediate_files_of_an_abandoned_build(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS)
    assert "nothing to remove" in run("gc", out).stdout
    work = out / ".build"
    assert not work.exists()
    (work / "thdpack-spill-abc").mkdir(parents=True)
    ours = ["map-000000.json", "map-000000.arrow", "thdpack-spill-abc/part"]
    for name in (*ours, "notes.txt", "plan.json"):
        (work / name).write_text("12345")
    make_old(out, WEEK + 60)
    assert "not removed: an unfinished array job" in run("gc", out, "--delete").stdout
    (work / "plan.json").unlink()
    assert "1 unfinished build with files" in run("gc", out, "--grace", "60d", "--delete").stdout
    os.utime(work / "thdpack-spill-abc")
    assert "1 unfinished build with files" in run("gc", out, "--delete").stdout
    make_old(out, WEEK + 60)
    os.utime(work / "thdpack-spill-abc", (0, 0))
    assert "15 bytes  .build/  (unfinished build)" in run("gc", out).stdout
    assert all((work / name).exists() for name in ours)
    done = run("gc", out, "--delete")
    assert "removed: intermediate files of unfinished builds, 15 bytes" in done.stdout
    assert {path.name for path in work.iterdir()} == {"notes.txt", "lock"}


def test_a_reader_keeps_reading_its_generation_while_later_ones_are_committed_and_collected(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    """The reader opens each shard only when it reads it. So gc must leave the shards in place."""
    out = grow(run, inputs[:3], tmp_path / "out", [2, 1], *OPTIONS)
    with ShardReader(out, prefetch=0) as reader:
        expected = [next(reader).input_ids.tobytes() for _ in range(2 * len(reader))]
    with ShardReader(out, prefetch=0) as reader:
        found = [next(reader).input_ids.tobytes() for _ in range(3)]
        run("append", out, inputs[3], **SIZES)
        run("compact", out, *inputs, **SIZES)
        run("gc", out, "--delete")
        found += [next(reader).input_ids.tobytes() for _ in range(2 * len(reader) - 3)]
    assert found == expected


def test_overwrite_removes_all_generations(run: Run, inputs: list[Path], tmp_path: Path) -> None:
    out = grow(run, inputs[:3], tmp_path / "out", [1, 1, 1], *OPTIONS)
    fresh = grow(run, inputs[3:], tmp_path / "fresh", [1], *OPTIONS)
    done = run("preprocess", inputs[3], "--out", out, *OPTIONS, **SIZES)
    assert done.returncode == 2
    assert "has 3 generations" in done.stderr
    run("preprocess", inputs[3], "--out", out, *OPTIONS, "--overwrite", **SIZES)
    assert digest(out) == digest(fresh)


def test_the_list_of_generations_names_compactions_and_removed_generations(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    out = grow(run, inputs[:3], tmp_path / "out", [2, 1], *OPTIONS)
    run("compact", out, *inputs[:3], **SIZES)
    rows = [json.loads(line) for line in run("generations", out, "--json").stdout.splitlines()]
    assert [row["note"] for row in rows] == ["", "", "compacted"]
    manifest = read_manifest(out)
    assert rows[2]["bytes"] == sum(entry.bytes for entry in manifest.files())
    times = [datetime.fromisoformat(row["written"]) for row in rows]
    assert times == sorted(times)
    assert times[2] <= datetime.now(UTC)
    told = run("gc", out, "--keep", 2).stdout
    assert "kept: generation 1 (replaced less than --grace 7d ago)\n" in told
    assert "kept: generation 2 (among the last --keep 2)\n" in told
    assert "kept: generation 3 (the latest)\n" in told
    run("gc", out, "--delete", "--grace", "0")
    first = json.loads(run("generations", out, "--json").stdout.splitlines()[0])
    assert (first["bytes"], first["written"]) == (0, "")
    table = run("generations", out).stdout.splitlines()
    assert [line.endswith("  removed") for line in table[1:]] == [True, True, False]
    assert table[3].endswith("  compacted")
