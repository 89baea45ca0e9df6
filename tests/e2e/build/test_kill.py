"""Killed and resumed builds give the same dataset. An unfinished dataset is never published."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.processes import started
from tests.helpers.processes.command_line import Run, preprocess, run_process
from tests.helpers.processes.killed import kill_builds
from tests.helpers.processes.started import Started
from tests.helpers.processes.stopped import processes_of

SIZES = {"task_bytes": 400_000, "partition_bytes": 500_000}
SPLIT = "train=0.7,valid=0.2,test=0.1"
SHAPE = ("--capacity", "2048", "--max-seq-len", "512", "--split", SPLIT)
OPTIONS = (*SHAPE, "--workers", "2")
END_SECONDS = 60.0
"""Time limit in seconds for steps that normally take a second."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "made.fasta"
    path.write_bytes(fasta(made_records(6000)))
    return path


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the hashes of all files of an uninterrupted build."""
    return digest(preprocess(corpus, tmp_path_factory.mktemp("whole") / "out", *SHAPE, **SIZES))


def start(corpus: Path, out: Path, *more: str, stop_after: int = 0) -> Started:
    """Start a build, which stops itself (SIGSTOP) after `stop_after` tasks. 0 means never."""
    setup = started.stopping_after_outcomes(stop_after) if stop_after else ""
    return started.start("preprocess", corpus, "--out", out, *OPTIONS, *more, setup=setup, **SIZES)


def start_and_stop(corpus: Path, out: Path, *more: str, after: int) -> Started:
    """Start a build that stops itself after `after` tasks, and wait until it has stopped."""
    process = start(corpus, out, *more, stop_after=after)
    process.wait_until_stopped()
    return process


def kill_all(process: Started) -> None:
    """Kill a process and its descendants, and wait until all have ended.

    Waiting is necessary, because a killed process may still finish a system call.
    """
    family = processes_of(process.pid)
    for target in family:
        with contextlib.suppress(ProcessLookupError):  # the process has already ended
            os.kill(target, signal.SIGKILL)
    process.communicate(timeout=END_SECONDS)
    await_end(family)


def await_end(processes: list[int]) -> None:
    deadline = time.monotonic() + END_SECONDS
    while any(alive(process) for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def alive(process: int) -> bool:
    """Return whether a process runs. A zombie does not run."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


LONG = "THDPACK_LONG" in os.environ
MOMENTS = {
    "driver": (1, 3, 6, 9, 11) if LONG else (1, 8),
    "worker": (1, 4, 7, 10) if LONG else (4,),
}
"""For each process to kill, the number of tasks that have finished before each kill."""


@pytest.mark.parametrize("victim", MOMENTS)
def test_a_build_killed_repeatedly_gives_the_same_bytes(
    run: Run,
    tmp_path: Path,
    corpus: Path,
    whole: dict[str, str],
    victim: str,
) -> None:
    """The driver is stopped before the kill, but its workers keep running."""
    out = tmp_path / "killed"
    for after in MOMENTS[victim]:
        process = start_and_stop(corpus, out, after=after)
        if victim == "driver":
            family = processes_of(process.pid)
            process.kill()
            process.communicate(timeout=END_SECONDS)
            await_end(family)
        else:
            os.kill(workers_of(process)[0], signal.SIGKILL)
            process.send_signal(signal.SIGCONT)
            printed = process.communicate(timeout=END_SECONDS)
            assert process.returncode == 1, printed
            assert "a worker process was killed" in printed
            assert "Traceback" not in printed
        assert not (out / "manifest.json").exists()
    process = start(corpus, out)
    printed = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0, printed
    assert digest(out) == whole
    assert not (out / ".build").exists()
    assert run("verify", out, "--deep").returncode == 0


def test_a_kill_while_variants_are_added_keeps_the_dataset(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    out = preprocess(corpus, tmp_path / "out", *SHAPE, **SIZES)
    before = digest(out)
    for after in (3, 9):
        kill_all(start_and_stop(corpus, out, "--variants", "2", after=after))
        kept = digest(out)
        assert before.items() <= kept.items()
        assert run("verify", out, "--deep").returncode == 0
    whole = preprocess(corpus, tmp_path / "whole", *SHAPE, "--variants", "2", **SIZES)
    process = start(corpus, out, "--variants", "2")
    printed = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0, printed
    assert digest(out) == digest(whole)
    assert not (out / ".build").exists()


def workers_of(process: Started) -> list[int]:
    """Return the ids of a driver's workers. Their parent is a fork server, not the driver."""
    found = [pid for pid in processes_of(process.pid)[1:] if parent_of(pid) != process.pid]
    assert found
    return found


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_kills_at_any_moment_of_a_build_give_the_same_bytes(tmp_path: Path) -> None:
    """The build has no worker processes, so the killed process plans the build and runs all tasks.
    Kills happen from planning to clean-up."""
    (tmp_path / "made.fasta").write_bytes(fasta(made_records(450)))
    count = 500 if LONG else 25
    finished = kill_builds(tmp_path / "made.fasta", tmp_path, count)
    assert len(finished) == count
    assert len(set(finished)) >= 10, finished


def test_a_resumed_build_reports_the_tasks_it_skips_and_runs_only_the_others(
    tmp_path: Path, corpus: Path
) -> None:
    out = tmp_path / "out"
    markers = out / ".build"
    kill_all(start_and_stop(corpus, out, after=3))
    first = [*markers.glob("map-*.json"), *markers.glob("hash-*.json")]
    finished = {path: path.stat().st_mtime_ns for path in first}
    assert len(finished) >= 3
    again = start_and_stop(corpus, out, after=7)  # runs a few more tasks, then stops
    assert {path: path.stat().st_mtime_ns for path in finished} == finished, "a task was run again"
    again.send_signal(signal.SIGCONT)
    printed = again.communicate(timeout=END_SECONDS)
    assert again.returncode == 0
    said = r"tokenize, partition: skipped (\d+) of \d+ tasks"
    skipped = re.search(said, printed)
    assert skipped is not None
    assert int(skipped[1]) == len(finished)


def test_a_damaged_spill_is_not_reused(
    run: Run,
    tmp_path: Path,
    corpus: Path,
    whole: dict[str, str],
) -> None:
    out = tmp_path / "out"
    kill_all(start_and_stop(corpus, out, after=3))
    spill = sorted((out / ".build").glob("map-*.json"))[0].with_suffix(".arrow")
    content = bytearray(spill.read_bytes())
    content[len(content) // 2] ^= 1
    spill.write_bytes(content)
    assert run("preprocess", corpus, "--out", out, *SHAPE, **SIZES).returncode == 0
    assert digest(out) == whole


@pytest.mark.parametrize("options", [(), ("--seed", "1", "--overwrite")])
def test_ctrl_c_after_the_commit_says_that_the_dataset_is_complete(
    run: Run, tmp_path: Path, corpus: Path, options: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    if options:
        assert run("preprocess", corpus, "--out", out, *SHAPE).returncode == 0
    words = ("preprocess", corpus, "--out", out, *SHAPE, *options)
    interrupt = "os.kill(os.getpid(), signal.SIGINT)"
    setup = (
        "import os, signal, pipeline.build.destination.local_destination as local; "
        f"local.remove_stale_cards = lambda *files: {interrupt}"
    )
    done = run_process(*words, setup=setup)
    assert done.returncode == 130
    assert f"{out}: the dataset is complete. Only intermediate files are left" in done.stderr
    assert "unfinished" not in done.stderr
    assert run("verify", out, "--deep").returncode == 0
    assert (out / ".build").is_dir()
    assert run(*words).returncode == 0
    assert not (out / ".build").exists()


def test_ctrl_c_ends_a_build_quickly_and_the_same_command_resumes(
    run: Run,
    tmp_path: Path,
    corpus: Path,
) -> None:
    out = tmp_path / "out"
    process = start_and_stop(corpus, out, after=1)
    family = processes_of(process.pid)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    printed = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 130
    assert "run the same command to resume" in printed
    assert f"unfinished files of this build: {out}/.build/" in printed
    assert "Traceback" not in printed
    await_end(family)
    assert not (out / "manifest.json").exists()
    assert "an unfinished build is here" in run("verify", out).stderr
    assert run("preprocess", corpus, "--out", out, *SHAPE, **SIZES).returncode == 0


def test_a_second_build_into_a_folder_is_refused_and_the_first_one_finishes(
    run_process: Run, tmp_path: Path, corpus: Path
) -> None:
    out = tmp_path / "out"
    first = start_and_stop(corpus, out, after=1)
    second = run_process("preprocess", corpus, "--out", out, *OPTIONS, **SIZES)
    first.send_signal(signal.SIGCONT)
    printed = first.communicate(timeout=END_SECONDS)
    assert first.returncode == 0, printed
    assert second.returncode == 1
    assert "another build is running" in second.stderr


def test_the_previous_dataset_stays_whole_until_the_new_one_replaces_it(
    run: Run,
    tmp_path: Path,
    corpus: Path,
    sample: Path,
) -> None:
    out = tmp_path / "out"
    assert run("preprocess", sample, "--out", out).returncode == 0
    before = digest(out)
    maps = -(-corpus.stat().st_size // SIZES["task_bytes"])
    process = start_and_stop(corpus, out, "--overwrite", after=maps + 1)
    assert list((out / ".build").glob("reduce-*.json"))
    kill_all(process)
    after = digest(out)
    assert all(after[name] == content for name, content in before.items())
    assert run("verify", out, "--deep").returncode == 0
