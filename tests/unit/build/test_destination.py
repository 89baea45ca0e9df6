"""Disturbed builds: another build has the same destination, an input changes, a file is damaged.

All builds run in this process.
"""

from __future__ import annotations

import errno
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pipeline.build import run_task
from pipeline.build.array_jobs.run_listed import commit, run_tasks
from pipeline.build.array_jobs.task_list import STAGES, TaskList, load_task_list, plan_tasks
from pipeline.build.build_plan import PLAN, Plan
from pipeline.build.destination.destination import open_destination
from pipeline.build.destination.missing_file import missing_file
from pipeline.build.destination.object_destination import ObjectDestination
from pipeline.build.map_stage.hash_task import HashTask
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import reporter
from pipeline.build.stages import reduce_tasks
from pipeline.build.tasks import MapTask
from pipeline.build.verify.verify_task import VerifyTask
from pipeline.inputs.source import Source
from pipeline.storage.atomic_write import written_atomically
from pipeline.storage.object_folder import ObjectFolder
from pipeline.storage.signed_json import signed
from schemas.errors import BuildError, DatasetError, InputError, OptionError
from schemas.manifest import Manifest
from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.processes.command_line import InThisProcess, use_few_small_tasks
from tests.helpers.stores.memory_store import empty_memory_store

OUT = "memory://bucket/out"
SMALL: dict[str, Any] = {"capacity": 1024, "max_seq_len": 512}
BuildHere = Callable[..., Manifest]


@pytest.fixture(autouse=True)
def _store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split builds into a few small tasks, and empty the in-memory store."""
    use_few_small_tasks(monkeypatch)
    empty_memory_store(monkeypatch)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "made.fasta"
    path.write_bytes(fasta(made_records(300)))
    return path


def once(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, meanwhile: Callable[..., object]
) -> None:
    """Replace a method so that its next call runs `meanwhile` first."""
    method = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(owner, name, method)
        meanwhile(*arguments)
        return method(*arguments, **named)

    monkeypatch.setattr(owner, name, call)


def test_a_build_removes_no_file_of_a_dataset_that_another_build_commits_meanwhile(
    build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = build_here(corpus, OUT, **SMALL)
    once(
        monkeypatch,
        ObjectDestination,
        "clear",
        lambda *_: build_here(corpus, OUT, overwrite=True, **SMALL),
    )
    build_here(corpus, OUT, seed=1, overwrite=True, **SMALL)
    assert missing_file(again, ObjectFolder(OUT)) is None


def test_a_build_that_removed_files_of_a_newly_committed_dataset_reports_it(
    build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.build.destination.object_destination.AT_ONCE", 1)
    build_here(corpus, OUT, **SMALL)
    once(
        monkeypatch,
        ObjectFolder,
        "remove",
        lambda *_: build_here(corpus, OUT, overwrite=True, **SMALL),
    )
    with pytest.raises(BuildError, match="needs files that this build removed"):
        build_here(corpus, OUT, seed=1, overwrite=True, **SMALL)


def test_a_build_fails_if_another_build_removed_its_file_and_the_next_build_writes_it_again(
    build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_here(corpus, OUT, seed=1, **SMALL)
    once(
        monkeypatch,
        ObjectDestination,
        "commit",
        lambda destination, manifest: destination.out.remove(manifest.files()[0].name),
    )
    with pytest.raises(BuildError, match="another build removed it"):
        build_here(corpus, OUT, overwrite=True, **SMALL)
    assert missing_file(build_here(corpus, OUT, overwrite=True, **SMALL), ObjectFolder(OUT)) is None


@pytest.mark.parametrize("reader", [MapTask, HashTask])
def test_an_input_replaced_while_it_is_read_is_refused(
    build_here: BuildHere,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reader: type,
) -> None:
    """Replace the input with a file of the same size, just before a task reads it. The bytes of a
    table are hashed by separate tasks (HashTask)."""
    other = tmp_path / "other"
    if reader is HashTask:
        corpus = tmp_path / "made.parquet"
        for path, residues in ((corpus, "MWA"), (other, "WMA")):
            pq.write_table(
                pa.table({"id": [f"r{i}" for i in range(9_000)], "sequence": [residues] * 9_000}),
                path,
                compression="none",
                use_dictionary=False,
            )
    else:
        other.write_bytes(corpus.read_bytes().replace(b"MW", b"WM"))
    once(
        monkeypatch,
        run_task,
        "hash_range" if reader is HashTask else "partition_records",
        lambda *_: other.replace(corpus),
    )
    with pytest.raises(InputError, match="changed while it was read"):
        build_here(corpus, tmp_path / "out", **SMALL)
    assert not (tmp_path / "out" / "manifest.json").exists()
    build_here(corpus, tmp_path / "out", **SMALL)
    build_here(corpus, tmp_path / "whole", **SMALL)
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


def listed(corpus: Path, out: str, **options: Any) -> TaskList:
    with reporter(as_json=False) as report:
        return plan_tasks(
            PreprocessOptions(inputs=(str(corpus),), out=out, **SMALL, **options), report
        )


def work_off(out: str, digest: str, *, commits: bool = True) -> Manifest | None:
    """Run all tasks of a task list one after another, and commit if `commits` is true.

    Returns:
        The committed manifest; None if nothing was committed.
    """
    with reporter(as_json=False) as report:
        for stage in STAGES:
            found = load_task_list(out, digest)
            if found is None:
                return None
            run_tasks(found, stage, 0, 1, report)
        found = load_task_list(out, digest)
        return commit(found, 1, report).manifest if found is not None and commits else None


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("pipeline.build.array_jobs.run_listed.ProcessExecutor", InThisProcess)
    return str(tmp_path / "out") if request.param == "disk" else OUT


def test_only_overwrite_replaces_an_unfinished_plan_whose_tasks_then_fail(
    build_here: BuildHere, corpus: Path, place: str
) -> None:
    mine = listed(corpus, place, seed=1).digest
    assert listed(corpus, place, seed=1, workers=3).digest == mine  # planned again
    with pytest.raises(DatasetError, match=r"another plan .* --overwrite"):
        listed(corpus, place, seed=2)
    with pytest.raises(DatasetError, match=r"another plan .* --overwrite"):
        build_here(corpus, place, **SMALL)
    other = listed(corpus, place, seed=2, overwrite=True).digest
    with pytest.raises(BuildError, match=f"another plan is here .{other}., not {mine}"):
        work_off(place, mine)
    build_here(corpus, place, overwrite=True, **SMALL)
    for gone in (mine, other):
        with pytest.raises(
            DatasetError, match=f"plan {gone} is gone, and the dataset here belongs to another plan"
        ):
            work_off(place, gone)
    assert load_task_list(place, None) is None


def test_the_tasks_of_a_plan_that_is_already_committed_do_nothing(
    build_here: BuildHere, corpus: Path, place: str
) -> None:
    digest = listed(corpus, place, seed=1).digest
    made = work_off(place, digest)
    assert made is not None
    assert made.seed == 1
    assert work_off(place, digest) is None
    again = listed(corpus, place, seed=2, overwrite=True).digest
    assert work_off(place, again, commits=False) is None
    # a build may finish the plan of a task list
    assert build_here(corpus, place, seed=2, overwrite=True, **SMALL).seed == 2
    assert work_off(place, again) is None


def test_a_task_list_on_a_store_does_not_replace_a_dataset_committed_after_planning(
    build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.build.array_jobs.run_listed.ProcessExecutor", InThisProcess)
    build_here(corpus, OUT, **SMALL)
    digest = listed(corpus, OUT, seed=1, overwrite=True).digest
    with (
        pytest.raises(BuildError, match="map tasks have not finished"),
        reporter(as_json=False) as report,
    ):
        run_tasks(the(load_task_list(OUT, digest)), "reduce", 0, 1, report)
    with pytest.raises(OptionError, match="is beyond the"), reporter(as_json=False) as report:
        run_tasks(the(load_task_list(OUT, digest)), None, 99, None, report)
    ObjectFolder(OUT).remove(PLAN)
    planned = signed(listed(corpus, OUT, seed=1, overwrite=True).to_json())
    build_here(corpus, OUT, seed=2, overwrite=True, **SMALL)
    # write the plan only now, because the other build must not see it
    with ObjectFolder(OUT).written(PLAN) as file:
        file.write(planned)
    with pytest.raises(BuildError, match="another build committed"):
        work_off(OUT, digest)


def test_a_failed_build_names_its_leftover_files_but_none_of_a_dataset_committed_meanwhile(
    build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the build verifies, another build (of another plan or the same one) commits. Then the
    first build fails."""
    for seed, named in ((1, True), (0, False)):
        MemoryFileSystem.store.clear()

        def meanwhile(*_: object, seed: int = seed) -> None:
            build_here(corpus, OUT, seed=seed, **SMALL)
            raise DatasetError("a file is missing")

        once(monkeypatch, run_task, "check_files", meanwhile)
        with pytest.raises(BuildError, match=r"/\.build/[0-9a-f]{16}/\. Remove") as failed:
            build_here(corpus, OUT, **SMALL)
        assert bool(re.search(rf"{OUT}/\*/[0-9a-f]{{16}}-\*", str(failed.value))) is named


def the(found: TaskList | None) -> TaskList:
    assert found is not None
    return found


def test_the_same_command_rewrites_a_file_that_fails_verification(
    build_here: BuildHere, corpus: Path, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change one byte of a shard before it is verified."""

    def damage(task: VerifyTask, *_: object) -> None:
        if place == OUT:
            MemoryFileSystem.store[f"/bucket/out/{task.shards[0].name}"].getbuffer()[-500] ^= 1
        else:
            path = Path(place, task.shards[0].name)
            path.write_bytes(
                path.read_bytes()[:-500]
                + bytes([path.read_bytes()[-500] ^ 1])
                + path.read_bytes()[-499:]
            )

    once(monkeypatch, run_task, "check_files", damage)
    with pytest.raises(BuildError, match="files of the dataset are damaged"):
        build_here(corpus, place, **SMALL)
    assert build_here(corpus, place, **SMALL) == build_here(corpus, tmp_path / "whole", **SMALL)


def test_builds_succeed_while_nfs_keeps_a_removed_file_and_a_later_build_removes_it(
    build_here: BuildHere, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an open file is removed, NFS renames the file, and removes it when it is closed."""
    out = tmp_path / "out"
    unlink = Path.unlink

    def keep(path: Path, missing_ok: bool = False) -> None:
        if path.name == "lock":
            path.rename(path.with_name(".nfs0001"))
        else:
            unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", keep)
    build_here(corpus, out, **SMALL)
    assert os.listdir(out / ".build") == [".nfs0001"]
    assert build_here(corpus, out, **SMALL).seed == 0
    monkeypatch.setattr(Path, "unlink", unlink)
    build_here(corpus, out, **SMALL)
    assert not (out / ".build").exists()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.EWOULDBLOCK, "another build is running"),
        (errno.ENOLCK, "cannot be locked .No locks available."),
    ],
)
def test_a_file_system_without_locks_is_not_reported_as_another_build(
    build_here: BuildHere,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    said: str,
) -> None:
    def flock(descriptor: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(BuildError, match=said):
        build_here(corpus, tmp_path / "out", **SMALL)


def test_a_file_that_is_replaced_is_never_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A requeued task may write a work file again while other machines read the file."""
    final, replace, there = tmp_path / "map-000000.arrow", os.replace, []
    monkeypatch.setattr(
        "os.replace", lambda *paths: (there.append(final.exists()), replace(*paths))
    )
    for _ in range(2):
        with written_atomically(final, scratch=tmp_path, durable=False) as file:
            file.write(b"the same")
    assert there == [False, True]


def test_a_shard_that_cannot_be_flushed_to_the_disk_ends_the_build_and_is_removed(
    build_here: BuildHere, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync, memory may hold the right content while the disk does not."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(BuildError, match=r"cannot write .*-0\.arrow: No space left on device"):
            build_here(corpus, tmp_path / "out", **SMALL)
    assert not list(tmp_path.glob("out/**/*.tmp")) + list(tmp_path.glob("out/train/*"))
    build_here(corpus, tmp_path / "out", **SMALL)
    build_here(corpus, tmp_path / "whole", **SMALL)
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


def test_the_pickled_size_of_a_task_does_not_grow_with_the_number_of_inputs(tmp_path: Path) -> None:
    options = PreprocessOptions(
        inputs=tuple(
            f"/a/rather/long/path/to/the/sequences/{i:05d}.fasta.gz" for i in range(10_000)
        ),
        out=str(tmp_path),
        **SMALL,
    )
    sources = tuple(
        Source(
            url=u,
            name=u,
            bytes=9,
            fingerprint="9-1-1-1",
            format="fasta",
            compression="gzip",
            piece=9,
        )
        for u in options.inputs
    )
    planned = Plan(
        sources=sources,
        passed_over=(),
        ranges=tuple((i, 0, 9) for i in range(9)),
        hashed=(),
        partitions=3,
    )
    listed = TaskList(options=options, plan=planned, destination=open_destination(str(tmp_path)))
    assert (
        max(
            len(pickle.dumps(task))
            for task in (*listed.maps, *reduce_tasks(listed.job("0" * 16), 3))
        )
        < 2500
    )
