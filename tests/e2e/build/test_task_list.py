"""A task list, which a scheduler runs, gives the same bytes as `thdpack preprocess`."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.processes.command_line import REPO, Run, command, environment, preprocess
from tests.helpers.processes.started import Started, start, stopping_at_change

SIZES = {"task_bytes": 300_000, "partition_bytes": 220_000}
OPTIONS = ("--capacity", "2048", "--max-seq-len", "512")
ROUNDS = 4 if os.environ.get("THDPACK_LONG") else 1
"""Number of times that each array element is killed before it may finish."""
SBATCH = """#!/bin/bash
# replaces `sbatch`: runs the script once for each array element, one after another
set -euo pipefail
echo "sbatch $*" >> "$SAID"
ARRAY=()
for argument in "$@"; do
    case "$argument" in --array=0-*) ARRAY=($(seq 0 "${argument#--array=0-}")) ;; esac
done
for index in "${ARRAY[@]:--}"; do
    SLURM_ARRAY_TASK_ID=$index SLURM_ARRAY_TASK_COUNT=${#ARRAY[@]} bash "${!#}" >> "$SAID"
done
echo 17
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "made.fasta"
    path.write_bytes(fasta(made_records(3000)))
    return path


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the hashes of all files of a dataset built by one command."""
    return digest(preprocess(corpus, tmp_path_factory.mktemp("whole") / "out", *OPTIONS, **SIZES))


def planned(run: Run, corpus: Path, out: Path, *more: str, **sizes: int) -> int:
    """Plan tasks; return their number."""
    done = run("plan-tasks", corpus, "--out", out, *OPTIONS, *more, **(sizes or SIZES))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "plan"
    return sum(
        int(line.split()[1])
        for line in done.stdout.splitlines()
        if line.split()[0] in ("map", "reduce")
    )


def test_a_task_list_gives_the_same_bytes_as_one_command(
    run: Run,
    run_process: Run,
    tmp_path: Path,
    corpus: Path,
    whole: dict[str, str],
) -> None:
    out = tmp_path / "out"
    count = planned(run, corpus, out)
    assert count > 8
    for index in range(count):
        done = run("run-task", out, "--index", index)
        assert done.returncode == 0, done.stderr
    done = run("commit", out, **SIZES)
    assert done.returncode == 0, done.stderr
    assert digest(out) == whole
    assert not (out / ".build").exists()
    for again in (("run-task", out, "--index", 3), ("commit", out)):
        done = run_process(*again)
        assert done.returncode == 0, done.stderr
        assert "nothing to do" in done.stdout
    assert digest(out) == whole


def test_a_task_list_whose_tasks_are_killed_repeatedly_gives_the_same_bytes(
    run: Run,
    tmp_path: Path,
    corpus: Path,
) -> None:
    """Run three array elements at the same time. Kill and requeue each, as Slurm does. Then commit.

    Each element is killed right before one of its first five changes in the dataset's folder. By
    then, it has finished at most one task, so work remains for the next round.
    """
    out = tmp_path / "out"
    smaller = {"task_bytes": 70_000, "partition_bytes": 80_000}
    planned(run, corpus, out, **smaller)
    rng = random.Random(1)
    for stage in ("map", "reduce"):
        share = ("run-task", out, "--stage", stage, "--array-size", 3, "--index")
        elements = [(*share, index) for index in range(3)]
        for _ in range(ROUNDS):
            kill_at_changes([rng.randint(1, 5) for _ in elements], out, *elements)
        finish(*(start(*words) for words in elements))
    for moment in range(1, 2 * ROUNDS + 1, 2):
        kill_at_changes([moment], out, ("commit", out), **smaller)
    finish(start("commit", out, **smaller))
    assert digest(out) == digest(preprocess(corpus, tmp_path / "whole", *OPTIONS, **smaller))
    assert run("verify", out, "--deep").returncode == 0


def kill_at_changes(
    moments: list[int],
    out: Path,
    *commands: tuple[object, ...],
    **sizes: int,
) -> None:
    """Start all commands. Kill command i right before its `moments[i]`-th change in `out`."""
    setups = [stopping_at_change(moment, out) for moment in moments]
    paired = zip(commands, setups, strict=True)
    processes = [start(*words, setup=setup, **sizes) for words, setup in paired]
    for process in processes:
        process.wait_until_stopped()
    for process in processes:
        process.kill()
        process.communicate(timeout=500)


def finish(*processes: Started) -> None:
    for process in processes:
        said = process.communicate(timeout=500)
        assert process.returncode == 0, said


@pytest.mark.parametrize(
    "clusters",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.skipif(
                "THDPACK_LONG" not in os.environ,
                reason="takes seconds; set THDPACK_LONG=1",
            ),
        ),
    ],
)
def test_the_sbatch_script_gives_the_same_bytes_with_fewer_array_elements_than_tasks(
    tmp_path: Path, corpus: Path, whole: dict[str, str], clusters: bool
) -> None:
    """With clusters, the list has a link stage and a draw stage."""
    options = [*OPTIONS]
    if clusters:
        table = tmp_path / "all clusters.tsv"  # OPTIONS has to quote this path
        table.write_text("".join(f"made{i // 3}\tmade{i}\n" for i in range(2_000)))
        options += ["--sample-clusters", str(table)]
        whole = digest(preprocess(corpus, tmp_path / "whole", *options, **SIZES))
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text(SBATCH)
    program.chmod(0o755)
    thdpack = program.with_name("thdpack-small")  # plans many small tasks
    words = command(**SIZES)
    thdpack.write_text(f"#!{words[0]}\n{words[2]}")
    thdpack.chmod(0o755)
    out, said = tmp_path / "out", tmp_path / "said"
    values = {
        "INPUTS": f"{corpus.parent}/*.fasta",
        "DATASET": str(out),
        "OPTIONS": shlex.join(options),
        "SIZE": "2",
        "THDPACK": str(thdpack),
        "SAID": str(said),
        "SLURM_JOB_ACCOUNT": "lab",
        "SLURM_JOB_PARTITION": "cpu",
    }
    env = {
        **environment(),
        **values,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPO),
    }
    done = subprocess.run(
        ["bash", str(REPO / "deploy" / "slurm" / "preprocess.sbatch")],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr + said.read_text()
    assert "thdpack run-task" not in done.stdout  # the script runs these commands
    assert done.stdout.endswith("when the last one, commit, has succeeded: job 17\n")
    text = said.read_text()
    jobs = [line for line in text.splitlines() if line.startswith("sbatch ")]
    assert all("--account=lab --partition=cpu " in line for line in jobs)
    assert text.count("--array=0-1") == 2 + 2 * clusters
    assert text.count("--dependency=afterok:17") == 2 + 2 * clusters
    assert digest(out) == whole


def test_errors_say_whether_a_plan_a_task_or_a_file_is_missing(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    out = tmp_path / "out"
    unplanned = run("run-task", out, "--index", 0)
    assert unplanned.returncode == 1
    assert "plan-tasks" in unplanned.stderr
    secret = run("plan-tasks", "s3://key:secret@bucket/in.fasta", "--out", out)
    assert secret.returncode == 1
    assert "environment" in secret.stderr
    assert "secret@" not in secret.stderr
    count = planned(run, corpus, out)
    early = run("run-task", out, "--stage", "reduce", "--index", 0)
    assert early.returncode == 1
    assert (
        "map tasks have not finished; run them first (--stage map --index N, with N = 0, 1, 2"
        in early.stderr
    )
    beyond = run("run-task", out, "--index", count)
    assert beyond.returncode == 2
    assert "is beyond the" in beyond.stderr
    beyond = run("run-task", out, "--stage", "map", "--index", count)
    assert re.search(
        rf"--index {count} is beyond the \d+ map tasks of this plan: the last",
        beyond.stderr.strip(),
    )
    assert run("run-task", out, "--index", 0, "--array-size", 3).returncode == 2
    assert run("run-task", out, "--stage", "map", "--index", 0, "--array-size", 1).returncode == 0
    lost = sorted((out / ".build").glob("map-*.arrow"))[1]
    lost.rename(lost.with_suffix(".away"))
    missing = run("run-task", out, "--stage", "reduce", "--index", 0)
    assert missing.returncode == 1
    assert "1 of" in missing.stderr
    assert "N = 1)" in missing.stderr
    assert "Traceback" not in missing.stderr
    lost.with_suffix(".away").rename(lost)
    assert run("run-task", out, "--stage", "reduce", "--index", 0).returncode == 0
    commit = run("commit", out)
    assert commit.returncode == 1
    assert (
        "reduce tasks have not finished; run them first (--stage reduce --index N, with N = 1, 2"
        in commit.stderr
    )
    assert not (out / "manifest.json").exists()


def test_an_input_that_changed_since_the_tasks_were_planned_is_refused(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    mine, out = tmp_path / "made.fasta", tmp_path / "out"
    shutil.copy(corpus, mine)
    planned(run, mine, out)
    mine.write_bytes(mine.read_bytes().replace(b">made3 ", b">made4 "))
    done = run("run-task", out, "--index", 0)
    assert done.returncode == 1
    assert "changed since the tasks were planned" in done.stderr
    mine.unlink()
    gone = run("run-task", out, "--index", 0)
    assert gone.returncode == 1
    assert f"{mine}: no such file on {os.uname().nodename}, where this task ran" in gone.stderr


def test_a_different_dataset_is_replaced_only_with_overwrite(
    run: Run, tmp_path: Path, corpus: Path, whole: dict[str, str]
) -> None:
    mine, out = tmp_path / "made.fasta", tmp_path / "out"
    mine.write_bytes(corpus.read_bytes().replace(b">made3 ", b">made4 "))
    assert run("preprocess", mine, "--out", out, *OPTIONS, **SIZES).returncode == 0
    before = digest(out)
    mine.write_bytes(corpus.read_bytes())  # same size, different content
    planned(run, mine, out)
    assert run("run-task", out, "--stage", "map", "--index", 0, "--array-size", 1).returncode == 0
    refused = run("run-task", out, "--stage", "reduce", "--index", 0)
    assert refused.returncode == 1
    assert "--overwrite" in refused.stderr
    assert digest(out) == before
    planned(run, mine, out, "--overwrite")
    for stage in ("map", "reduce"):
        assert (
            run("run-task", out, "--stage", stage, "--index", 0, "--array-size", 1).returncode == 0
        )
    assert {name: content for name, content in digest(out).items() if name in before} == before, (
        "the old dataset must stay whole until the new one replaces it"
    )
    assert run("commit", out, **SIZES).returncode == 0
    assert digest(out) == whole
