"""`plan-tasks` prints commands that build the dataset; `run-task` reports finished tasks.
The script for Slurm says what it needs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import REPO, Run, environment

SIZES = {"task_bytes": 30_000, "partition_bytes": 60_000}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "made.fasta"
    path.write_bytes(fasta(made_records(300)))
    return path


def test_a_task_that_has_finished_is_reported_as_skipped(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    out = tmp_path / "out"
    assert run("plan-tasks", corpus, "--out", out, **SIZES).returncode == 0
    task = ("run-task", out, "--stage", "map", "--index", 0)
    first = run(*task)
    assert first.stdout == "1 task run\n"
    phase, line = first.stderr.splitlines()
    assert re.fullmatch(r"map \([1-9]\d*\.\d kB\)", phase)
    pattern = (
        rf"map task 0 \(of 0 to \d+\): made\.fasta, [\d.]+ s on {re.escape(os.uname().nodename)}"
    )
    assert re.fullmatch(pattern, line)
    assert run("run-task", out, "--index", 0).stderr == f"{phase}\n"
    again = "1 task skipped, because an earlier run finished it"
    assert run(*task).stdout == f"{again}; nothing to do\n"
    assert run(*task, "--array-size", 2).stdout.endswith(f" run; {again}\n")
    assert '{"event": "tasks", "run": 0, "skipped": 1}' in run(*task, "--log-json").stdout


def test_run_task_prints_one_line_for_each_task_of_an_array_element(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    out = tmp_path / "out"
    assert run("plan-tasks", corpus, "--out", out, **SIZES).returncode == 0
    for stage in ("map", "reduce"):
        shown = []
        for index in range(2):
            words = ("--stage", stage, "--index", index, "--array-size", 2)
            done = run("run-task", out, *words, "--log-json")
            events = [json.loads(line) for line in done.stdout.splitlines()]
            tasks = [event for event in events if event["event"] == "note"]
            assert events[-1]["run"] == len(tasks)
            assert {task["index"] % 2 for task in tasks} <= {index}
            assert all(task["stage"] == stage and task["seconds"] >= 0 for task in tasks)
            assert {task["input"] for task in tasks} <= {"made.fasta" if stage == "map" else None}
            shown += [task["index"] for task in tasks]
        assert len(shown) > 1
        assert sorted(shown) == list(range(len(shown)))


def test_the_commands_printed_by_plan_tasks_build_the_dataset(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    out = tmp_path / "a folder"
    words_of_plan = ("plan-tasks", corpus, "--out", out)
    lines = run(*words_of_plan).stdout.splitlines()
    assert lines[1].split(maxsplit=2) == ["work", "folder", str(out / ".build")]
    commands = [shlex.split(line, comments=True)[1:] for line in lines if " thdpack " in line]
    assert [words[:2] for words in commands] == [
        ["thdpack", "run-task"],
        ["thdpack", "run-task"],
        ["thdpack", "commit"],
    ]
    for words in commands:
        done = run(*words[1:])
        assert done.returncode == 0, done.stderr
    assert run("verify", out).returncode == 0
    again = run(*words_of_plan)
    assert "also check whether the contents of the inputs are equal" in again.stderr


def test_a_damaged_task_list_is_replaced_only_with_overwrite(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    planned = ("plan-tasks", corpus, "--out", tmp_path)
    run(*planned)
    os.truncate(tmp_path / ".build" / "plan.json", 200)
    said = f"{tmp_path}: the task list here is damaged, or of another version: choose another --out"
    assert said in run(*planned).stderr
    assert run(*planned, "--overwrite").returncode == 0


@pytest.mark.parametrize("missing", ["INPUTS", "DATASET"])
def test_the_sbatch_script_says_which_variables_it_needs(missing: str) -> None:
    values = {"INPUTS": "x.fasta", "DATASET": "x"}
    env = {**environment(), **values, missing: ""}
    words = ["bash", str(REPO / "deploy" / "slurm" / "preprocess.sbatch")]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("preprocess.sbatch: set INPUTS and DATASET, for example: INPUTS=")


SBATCH = {
    "PATH": os.environ["PATH"],
    "BASH_FUNC_sbatch%%": "() { echo sbatch is called; }",
    "THDPACK": "echo",
}
"""Variables with which the script finds `sbatch` and a program that plans nothing."""


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "sbatch is not in PATH, and this script needs Slurm. Without Slurm: thdpack prep"),
        ({"STAGE": "map"}, "STAGE is map, which this script sets for its own jobs: unset STAGE"),
        ({"STAGE": "x"}, "STAGE is x, which this script sets for its own jobs: unset STAGE"),
        ({"STAGE": "commit"}, "STAGE is commit, which this script sets for its own jobs: unset"),
        ({"SIZE": "abc"}, "SIZE is 'abc', expected a whole number from 1"),
        ({"COMMIT_CPUS": "0"}, "COMMIT_CPUS is '0', expected a whole number from 1"),
        ({"SIZE": "9" * 20}, f"SIZE is {'9' * 20}, expected at most 999999"),
        ({"DATASET": "x\r"}, "DATASET contains a carriage return"),
        ({"DATASET": " "}, "set INPUTS and DATASET, for example: INPUTS="),
        ({**SBATCH, "THDPACK": " "}, "THDPACK is blank, expected the command"),
        ({**SBATCH, "THDPACK": "/x -v"}, "THDPACK is '/x -v', but there is no program /x"),
        (SBATCH, "'echo plan-tasks' printed no plan: set THDPACK to"),
        ({**SBATCH, "OPTIONS": "'--dry-run'"}, "OPTIONS has --dry-run, but this script needs"),
        ({**SBATCH, "OPTIONS": "--log_json"}, "OPTIONS has --log_json, but this script needs"),
        ({**SBATCH, "OPTIONS": "-h"}, "OPTIONS has -h, but this script needs the plan"),
    ],
)
def test_the_sbatch_script_refuses_wrong_settings_in_one_line(
    values: dict[str, str], said: str
) -> None:
    bash = shutil.which("bash")
    assert bash
    env = {"INPUTS": "x.fasta", "DATASET": "x", "PATH": "", **values}
    words = [bash, str(REPO / "deploy" / "slurm" / "preprocess.sbatch")]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"preprocess.sbatch: {said}")
    assert done.stderr.count("\n") == 1
    assert not done.stdout


@pytest.mark.parametrize(
    ("stage", "advice"),
    [
        ("map", "Correct the cause (for a limit on arrays, set SIZE to less than 1000)"),
        ("commit", "Run: scancel 17 17. Then correct the cause"),
    ],
)
def test_the_sbatch_script_says_how_to_resume_after_sbatch_failed(stage: str, advice: str) -> None:
    sbatch = f"() {{ [ $STAGE != {stage} ] || return 1; echo 17; }}"
    thdpack = "() { printf 'plan d\\n map 2 tasks\\n reduce 2 tasks\\n'; }"
    functions = {"BASH_FUNC_sbatch%%": sbatch, "BASH_FUNC_thdpack%%": thdpack}
    env = {**environment(), "INPUTS": "x.fasta", "DATASET": "x", **functions}
    words = ["bash", str(REPO / "deploy" / "slurm" / "preprocess.sbatch")]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"preprocess.sbatch: sbatch did not submit the job of the stage {stage}. {advice}, and "
        "submit this script again to resume\n"
    )
