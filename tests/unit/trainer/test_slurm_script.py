"""The Slurm script deploy/slurm/train.sbatch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from trainer.config import parse

SBATCH = Path(__file__).parents[3] / "deploy" / "slurm" / "train.sbatch"


def test_the_slurm_script_starts_torchrun_with_options_that_exist() -> None:
    command = (
        SBATCH.read_text()
        .split("srun --kill-on-bad-exit=1 torchrun \\\n")[1]
        .split("|| STATUS")[0]
        .replace("\\\n", " ")
    )
    parsed = get_args_parser().parse_args(
        command.replace("$SLURM_NNODES", "2")
        .replace("$SLURM_GPUS_ON_NODE", "8")
        .replace('"', "")
        .split()
    )
    assert parsed.signals_to_handle == "SIGTERM,SIGINT,SIGUSR1"
    assert parsed.training_script == "thdpack"
    assert parsed.training_script_args[0] == "train"
    parse([word.replace("$STEPS", "5000") for word in parsed.training_script_args[1:]])


@pytest.mark.parametrize(
    ("status", "progress", "requeued"), [(0, True, False), (1, True, True), (1, False, False)]
)
def test_the_slurm_script_requeues_only_failed_jobs_that_made_progress(
    tmp_path: Path, status: int, progress: bool, requeued: bool
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    latest = tmp_path / "run" / "checkpoints" / "latest"
    latest.write_text("step-00000010")
    stubs = {
        "srun": f"{f'echo step-00000020 > {latest}' if progress else ':'}; exit {status}",
        "scontrol": f'echo "$@" >> {tmp_path}/scontrol; echo node1',
    }
    for name, body in stubs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    slurm = {
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_NNODES": "2",
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_JOB_ID": "7",
        "RUN": str(tmp_path / "run"),
    }
    done = subprocess.run(
        ["bash", SBATCH],
        env={**os.environ, **slurm, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"},
        check=False,
    )
    assert done.returncode == status
    assert ("requeue 7" in (tmp_path / "scontrol").read_text()) is requeued
