"""A task list on an object store, run on machines that share no disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.data.corpus import digest
from tests.helpers.processes.command_line import Run, preprocess
from tests.helpers.processes.started import start
from tests.helpers.stores.object_store import ObjectStore, digests, objects, put
from tests.helpers.stores.store_builds import OPTIONS, OUT, SIZES, STOP


def test_a_task_list_on_a_store_runs_in_processes_that_share_no_disk(
    run: Run,
    store: ObjectStore,
    tmp_path: Path,
    corpus: Path,
    near: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each process has its own temporary folder. One process is killed between two map tasks."""
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    done = run("plan-tasks", "s3://bucket/in/*.fasta", "--out", OUT, *OPTIONS, **SIZES)
    assert done.returncode == 0, done.stderr
    for stage, setup in (("map", STOP), ("map", ""), ("reduce", "")):
        mine = tmp_path / f"{stage}-{'killed' if setup else 'whole'}"
        mine.mkdir()
        monkeypatch.setenv("TMPDIR", str(mine))
        words = ("run-task", OUT, "--stage", stage, "--index", 0, "--array-size", 1)
        process = start(*words, setup=setup)
        if setup:
            process.wait_until_stopped()
            process.kill()
        said = process.communicate(timeout=500)
        assert process.returncode == (-9 if setup else 0), said
    monkeypatch.delenv("TMPDIR")
    done = run("commit", OUT, **SIZES)
    assert done.returncode == 0, done.stderr
    assert digests(OUT) == digest(near)
    assert not any(name.startswith(".build") for name in objects(OUT))
    assert "nothing to do" in run("run-task", OUT, "--index", 0).stdout


def test_a_task_list_with_clusters_runs_on_a_store(
    run: Run, store: ObjectStore, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process has its own temporary folder. Two processes are killed, one between two link
    tasks and one between two draw tasks."""
    table = "".join(f"made{i // 3}\tmade{i}\t{1 + i % 5}\n" for i in range(1_000)).encode()
    (tmp_path / "clusters.tsv").write_bytes(table)
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    put("s3://bucket/in/clusters.tsv", table)
    words = ("--out", OUT, *OPTIONS, "--sample-clusters", "s3://bucket/in/clusters.tsv")
    done = run("plan-tasks", "s3://bucket/in/made.fasta", *words, **SIZES)
    assert done.returncode == 0, done.stderr
    stages = (("map", ""), ("link", STOP), ("link", ""), ("draw", STOP), ("draw", ""))
    for stage, setup in (*stages, ("reduce", "")):
        mine = tmp_path / f"{stage}-{'killed' if setup else 'whole'}"
        mine.mkdir()
        monkeypatch.setenv("TMPDIR", str(mine))
        process = start(
            *("run-task", OUT, "--stage", stage, "--index", 0, "--array-size", 1), setup=setup
        )
        if setup:
            process.wait_until_stopped()
            process.kill()
        said = process.communicate(timeout=500)
        assert process.returncode == (-9 if setup else 0), said
    monkeypatch.delenv("TMPDIR")
    done = run("commit", OUT, **SIZES)
    assert done.returncode == 0, done.stderr
    words = (*OPTIONS, "--sample-clusters", tmp_path / "clusters.tsv")
    assert digests(OUT) == digest(preprocess(corpus, tmp_path / "near", *words, **SIZES))
    assert not any(name.startswith(".build") for name in objects(OUT))
