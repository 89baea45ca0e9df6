"""A damaged work file never damages a dataset: the task that wrote the file runs again.

Work files are spills, which map tasks write, and rests, which hold sequences that did not fill a
bucket.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pipeline.build import run_task
from pipeline.build.array_jobs.run_listed import commit, run_tasks
from pipeline.build.array_jobs.task_list import load_task_list, plan_tasks
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import reporter
from pipeline.build.rerun_damaged import ATTEMPTS
from pipeline.build.tasks import ReduceTask, RestTask
from schemas.errors import DamagedSpillError
from schemas.manifest import Manifest
from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.processes.command_line import InThisProcess, use_few_small_tasks
from tests.helpers.stores.memory_store import empty_memory_store

SMALL: dict[str, Any] = {"capacity": 1024, "max_seq_len": 512}
OUT = "memory://bucket/out"
FLIPS = 60 if os.environ.get("THDPACK_LONG") else 6
BuildHere = Callable[..., Manifest]
Damage = Callable[[str, bytes], bytes]


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_few_small_tasks(monkeypatch)
    monkeypatch.setattr("pipeline.build.array_jobs.run_listed.ProcessExecutor", InThisProcess)
    empty_memory_store(monkeypatch)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "made.fasta"
    path.write_bytes(fasta(made_records(300)))
    return path


@pytest.fixture(params=["disk", "grouped", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a destination. The destinations differ in how spills are laid out or read."""
    if request.param == "grouped":
        monkeypatch.setattr("pipeline.build.spill.spill_files.GROUPED_FROM", 2)
    return OUT if request.param == "store" else str(tmp_path / "out")


def work_files(place: str) -> list[Any]:
    """Return the spills and rests of a build, as paths or as keys of the store."""
    if place == OUT:
        return sorted(
            key for key in MemoryFileSystem.store if "/.build/" in key and key.endswith(".arrow")
        )
    return sorted(Path(place).glob(".build/*.arrow"))


def damage(file: Any, change: Callable[[bytes], bytes]) -> None:
    if isinstance(file, Path):
        file.write_bytes(change(file.read_bytes()))
    else:
        stored = MemoryFileSystem.store[file]
        content = change(stored.getvalue())
        stored.seek(0)
        stored.truncate()
        stored.write(content)


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def before(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    then: Callable[[], object],
    *,
    always: bool = False,
) -> None:
    """Call `then` before the next task of type `owner`; with `always`, before each such task."""
    name = "pack_rests" if owner is RestTask else "reduce_partition"
    run = getattr(run_task, name)

    def call(*arguments: Any) -> Any:
        if not always:
            monkeypatch.setattr(run_task, name, run)
        then()
        return run(*arguments)

    monkeypatch.setattr(run_task, name, call)


@pytest.mark.parametrize("reader", [ReduceTask, RestTask])
def test_a_flipped_bit_in_a_work_file_does_not_change_the_dataset(
    build_here: BuildHere,
    corpus: Path,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reader: type,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = build_here(corpus, tmp_path / "whole", **SMALL)
    rng = random.Random(1)
    found = 0

    def flip() -> None:
        files = [
            file for file in work_files(place) if ("rest-of-" in str(file)) == (reader is RestTask)
        ]
        file = rng.choice(files)
        size = len(
            file.read_bytes() if isinstance(file, Path) else MemoryFileSystem.store[file].getvalue()
        )
        damage(file, lambda content: flipped(content, rng.randrange(8 * size)))

    for _ in range(FLIPS):
        before(monkeypatch, reader, flip)
        assert build_here(corpus, place, overwrite=True, **SMALL) == expected
        found += "is not what was written" in capsys.readouterr().err
        clear(place)
    assert found >= FLIPS // 2, f"only {found} of {FLIPS} flipped bits were reported"


def clear(place: str) -> None:
    if place == OUT:
        MemoryFileSystem.store.clear()
    else:
        (Path(place) / "manifest.json").unlink()


@pytest.mark.parametrize("grouped_from", [2, 512])
@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda _: b"",
        lambda c: c + c,
    ],
)
def test_a_spill_whose_length_changed_is_written_again(
    build_here: BuildHere,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[bytes], bytes],
    grouped_from: int,
) -> None:
    monkeypatch.setattr("pipeline.build.spill.spill_files.GROUPED_FROM", grouped_from)
    place = str(tmp_path / "out")
    before(monkeypatch, ReduceTask, lambda: damage(work_files(place)[1], change))
    assert build_here(corpus, place, **SMALL) == build_here(corpus, tmp_path / "whole", **SMALL)


def test_swapped_partitions_of_a_spill_are_found(
    build_here: BuildHere, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swap the positions of two partitions in the index. The partitions do not change."""
    place = str(tmp_path / "out")
    monkeypatch.setattr("pipeline.build.spill.spill_files.GROUPED_FROM", 2)

    def swap() -> None:
        damage(work_files(place)[0], lambda content: content[24:48] + content[:24] + content[48:])

    before(monkeypatch, ReduceTask, swap)
    assert build_here(corpus, place, **SMALL) == build_here(corpus, tmp_path / "whole", **SMALL)


def test_a_spill_that_is_damaged_again_after_each_attempt_ends_the_build_with_an_error(
    build_here: BuildHere, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "out")
    times = []

    def spoil() -> None:
        times.append(1)
        damage(work_files(place)[0], lambda content: b"\1" + content[1:])

    with monkeypatch.context() as patch:
        before(patch, ReduceTask, spoil, always=True)
        with pytest.raises(
            DamagedSpillError,
            match=r"map-000000\.arrow is not what was written.* run the same command",
        ):
            build_here(corpus, place, **SMALL)
    assert len(times) == ATTEMPTS
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert build_here(corpus, place, **SMALL) == build_here(corpus, tmp_path / "whole", **SMALL)


def test_run_task_and_commit_repeat_tasks_whose_work_files_are_damaged(
    build_here: BuildHere, corpus: Path, place: str, tmp_path: Path
) -> None:
    with reporter(as_json=False) as report:
        plan_tasks(PreprocessOptions(inputs=(str(corpus),), out=place, **SMALL), report)

        def of(stage: str) -> None:
            listed = load_task_list(place, None)
            assert listed is not None
            run_tasks(listed, stage, 0, 1, report)

        of("map")
        damage(work_files(place)[1], lambda content: flipped(content, 4 * len(content)))
        of("reduce")
        # `commit` repeats the reduce task that wrote the rest. This task reads the spill that is
        # damaged below, so `commit` also repeats the map task that wrote the spill.
        damage(
            next(file for file in work_files(place) if "rest-of-" in str(file)),
            lambda content: flipped(content, 999),
        )
        damage(work_files(place)[0], lambda content: flipped(content, 4 * len(content)))
        listed = load_task_list(place, None)
        assert listed is not None
        made = commit(listed, 1, report).manifest
    assert made == build_here(corpus, tmp_path / "whole", **SMALL)


def test_worker_processes_write_a_damaged_spill_again(
    run_process: Any, corpus: Path, tmp_path: Path
) -> None:
    """Run the command with worker processes. Damage a spill after the map stage."""
    import subprocess

    from tests.helpers.processes.command_line import REPO, command, environment

    out = str(tmp_path / "out")
    setup = f"import tests.e2e.build.test_damaged_spills as t; t.flip_when_mapped({out!r})"
    words = (
        "preprocess",
        str(corpus),
        "--out",
        str(tmp_path / "out"),
        "--workers",
        "2",
        "--capacity",
        "1024",
        "--max-seq-len",
        "512",
    )
    sizes = {"task_bytes": 60_000, "partition_bytes": 60_000}
    done = subprocess.run(
        command(*words, setup=setup, **sizes),
        cwd=REPO,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "map-000000 runs again" in done.stderr
    whole = run_process(
        *(word if word != str(tmp_path / "out") else str(tmp_path / "whole") for word in words),
        **sizes,
    )
    assert whole.returncode == 0, whole.stderr
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


def flip_when_mapped(out: str) -> None:
    """Damage a spill when the map stage has ended. The command's process calls this function."""
    from pipeline.build.build_dataset import Build

    save = Build._map

    def mapped(build: Build, *prepared: Any) -> Any:
        found = save(build, *prepared)
        Build._map = save  # type: ignore[method-assign]
        damage(work_files(out)[0], lambda content: flipped(content, 4 * len(content)))
        return found

    Build._map = mapped  # type: ignore[method-assign]
