"""Disturbed builds: an input changes, a file is damaged, or the file system fails.

All builds run in this process.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pipeline.build import run_task
from pipeline.build.map_stage.hash_task import HashTask
from pipeline.build.tasks import MapTask
from pipeline.build.verify.verify_task import VerifyTask
from pipeline.storage.atomic_write import written_atomically
from schemas.errors import BuildError, InputError
from tests.helpers.data.corpus import digest
from tests.helpers.processes.disturbed_builds import OUT, SMALL, BuildHere, once


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
    ("host", "said"),
    [
        ("far", "is running here (held by pid 2147483647 on far since today: plan-tasks x); wait"),
        (os.uname().nodename, "is running here; wait"),  # no process has this pid
    ],
)
def test_a_process_that_has_ended_is_not_named_as_the_other_build(
    build_here: BuildHere, corpus: Path, tmp_path: Path, host: str, said: str
) -> None:
    """`thdpack run-task` holds the lock, but the file names the finished `plan-tasks`."""
    work = tmp_path / "out" / ".build"
    work.mkdir(parents=True)
    holder = {"pid": 2**31 - 1, "host": host, "command": "plan-tasks x", "since": "today"}
    (work / "lock").write_text(json.dumps(holder))
    with (work / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(BuildError, match=re.escape(said)):
            build_here(corpus, work.parent, **SMALL)


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
