"""The Slurm script deploy/slurm/train.sbatch."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from trainer.checkpoints.run_lock import LOCK
from trainer.config import TrainOptions, parse

SBATCH = Path(__file__).parents[3] / "deploy" / "slurm" / "train.sbatch"


def submitted(
    folder: Path, stubs: dict[str, str], **values: str
) -> subprocess.CompletedProcess[str]:
    """Run the script in a job of two nodes, with stubs of Slurm's commands."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, body in {"scontrol": "echo node1", "torchrun": ":", **stubs}.items():
        (folder / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / "bin" / name).chmod(0o755)
    slurm = {
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_NNODES": "2",
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_CPUS_PER_TASK": "64",
        "SLURM_JOB_ID": "7",
        "DATASET": str(folder),
        "RUN": str(folder / "run"),
    }
    env = {**os.environ, **slurm, "PATH": f"{folder}/bin:{os.environ['PATH']}", **values}
    return subprocess.run(["bash", SBATCH], env=env, capture_output=True, text=True, check=False)


def started(folder: Path, **values: str) -> TrainOptions:
    """Return the options of `thdpack train` in the script's command."""
    done = submitted(folder, {"srun": f'printf "%q " "$@" > {folder}/words'}, **values)
    assert done.returncode == 0, done.stderr
    words = shlex.split((folder / "words").read_text())
    assert words[:3] == ["--cpus-per-task=64", "--kill-on-bad-exit=1", "torchrun"]
    parsed = get_args_parser().parse_args(words[3:])
    assert (parsed.nnodes, parsed.nproc_per_node) == ("2", "8")
    assert parsed.rdzv_endpoint == f"node1:{20_000 + int(values.get('SLURM_JOB_ID', '7')) % 10_000}"
    assert parsed.signals_to_handle == "SIGTERM,SIGINT,SIGUSR1"
    assert parsed.training_script == "thdpack"
    assert parsed.training_script_args[0] == "train"
    return parse(parsed.training_script_args[1:])


def test_the_slurm_script_starts_torchrun_with_options_that_exist(tmp_path: Path) -> None:
    options = started(tmp_path)
    assert options.data.data == (str(tmp_path),)
    assert options.data.cache_dir == ""
    assert options.model.layers == 33
    chosen = {
        "DATASET": "s3://bucket/sets/uniref50",
        "PRESET": "esm2-8m",
        "OPTIONS": "--steps 700 --precision bf16",
    }
    options = started(tmp_path, **chosen)
    assert options.data.data == ("s3://bucket/sets/uniref50",)
    assert options.data.cache_dir.startswith("/tmp/thdpack-")
    assert (options.model.layers, options.optimizer.steps) == (6, 700)
    started(tmp_path, SLURM_JOB_ID="12345678")
    assert started(tmp_path, **chosen, CACHE="/scratch/my cache").data.cache_dir.endswith(" cache")
    quoted = started(tmp_path, OPTIONS="--cache-dir '/scratch/my cache'")
    assert quoted.data.cache_dir == "/scratch/my cache"


@pytest.mark.parametrize(
    ("status", "progress", "requeued"), [(0, True, False), (1, True, True), (1, False, False)]
)
def test_the_slurm_script_requeues_only_failed_jobs_that_made_progress(
    tmp_path: Path, status: int, progress: bool, requeued: bool
) -> None:
    latest = tmp_path / "run" / "checkpoints" / "latest"
    latest.parent.mkdir(parents=True)
    latest.write_text("step-00000010")
    stubs = {
        "srun": f"{f'echo step-00000020 > {latest}' if progress else ':'}; exit {status}",
        "scontrol": f'echo "$@" >> {tmp_path}/scontrol; echo node1',
    }
    done = submitted(tmp_path, stubs)
    assert done.returncode == status
    assert ("requeue 7" in (tmp_path / "scontrol").read_text()) is requeued
    again = "submit the same command again to resume from the checkpoint step-00000010\n"
    assert done.stderr.endswith(again) is (status != 0 and not progress)


@pytest.mark.parametrize("ours", [False, True])
def test_the_slurm_script_does_not_requeue_a_job_that_another_run_kept_from_training(
    tmp_path: Path, ours: bool
) -> None:
    """The other run writes a checkpoint meanwhile. A lock that a killed run left is replaced."""
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / LOCK).write_text("other run")
    own = f"echo ours > {run}/{LOCK}; " if ours else ""
    stubs = {
        "srun": f"{own}echo step-00000020 > {run}/checkpoints/latest; exit 1",
        "scontrol": f'echo "$@" >> {tmp_path}/scontrol; echo node1',
    }
    done = submitted(tmp_path, stubs)
    assert ("requeue 7" in (tmp_path / "scontrol").read_text()) is ours
    assert (f"another run writes to {run}" in done.stderr) is not ours


def test_the_slurm_script_says_how_to_resume_a_job_that_slurm_does_not_requeue(
    tmp_path: Path,
) -> None:
    latest = tmp_path / "run" / "checkpoints" / "latest"
    stubs = {
        "srun": f"mkdir -p {latest.parent}; echo step-00000020 > {latest}; exit 1",
        "scontrol": "echo node1; [ $1 != requeue ] || exit 9",
    }
    done = submitted(tmp_path, stubs)
    assert done.returncode == 1
    assert done.stderr == (
        "train.sbatch: Slurm did not requeue this job. To resume from the checkpoint step-00000020,"
        " submit the same command again\n"
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"RUN": ""}, "set DATASET and RUN, for example: DATASET=/shared/data/"),
        ({"DATASET": " "}, "set DATASET and RUN, for example: DATASET=/shared/data/"),
        ({"DATASET": "/none"}, "DATASET is /none, but this node has no such folder"),
        ({"PRESET": "esm2-8m\r"}, "PRESET contains a carriage return"),
        ({"OPTIONS": "--out x"}, "OPTIONS has --out: remove it, and set RUN instead"),
        ({"OPTIONS": "--help"}, "OPTIONS has --help, which trains nothing: remove it"),
        ({"OPTIONS": "'x"}, "OPTIONS has a quote without its partner: 'x"),
    ],
)
def test_a_wrong_setting_is_one_line_before_training_starts(
    tmp_path: Path, values: dict[str, str], said: str
) -> None:
    done = submitted(tmp_path, {"srun": "echo started"}, **values)
    assert done.returncode == 2
    assert done.stderr.startswith(f"train.sbatch: {said}")
    assert done.stderr.count("\n") == 1
    assert not done.stdout


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "this is not a Slurm job. Run: sbatch deploy/slurm/train.sbatch"),
        ({"SLURM_JOB_ID": "7"}, "this job has no GPUs: give sbatch --gpus-per-node"),
        ({"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "8"}, "torchrun is not in PATH"),
        ({"SHUTDOWN_SECONDS": "5m"}, "SHUTDOWN_SECONDS is '5m', expected a whole number from 1"),
    ],
)
def test_a_script_that_cannot_run_says_in_one_line_what_to_do(
    values: dict[str, str], said: str
) -> None:
    bash = shutil.which("bash")
    assert bash
    words = [bash, str(SBATCH)]
    env = {"PATH": "", **values}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"train.sbatch: {said}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("given", "seconds"), [({}, "150"), ({"SHUTDOWN_SECONDS": "270"}, "270")])
def test_the_slurm_script_takes_the_shutdown_timeout_from_the_environment(
    tmp_path: Path, given: dict[str, str], seconds: str
) -> None:
    srun = f"echo $TORCH_ELASTIC_SHUTDOWN_TIMEOUT > {tmp_path}/seconds"
    assert submitted(tmp_path, {"srun": srun}, **given).returncode == 0
    assert (tmp_path / "seconds").read_text().strip() == seconds
