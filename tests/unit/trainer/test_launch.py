"""Wrong environment variables of a launcher are one line, not a traceback or a lonely rank."""

from __future__ import annotations

import pytest

from schemas.errors import OptionError
from trainer.distributed.launch import rank_and_world_size

NAMES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"),
    *("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
)
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        (TORCHRUN, (1, 2)),
        ({**TORCHRUN, "SLURM_STEP_NUM_TASKS": "2"}, (1, 2)),  # srun starts torchrun on each node
        ({"SLURM_STEP_NUM_TASKS": "1"}, (0, 1)),
    ],
)
def test_ranks_come_from_torchrun(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: tuple[int, int]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rank_and_world_size() == expected


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "WORLD_SIZE is 2, but LOCAL_RANK is not set"),
        ({**TORCHRUN, "WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', expected a number"),
        ({**TORCHRUN, "RANK": "2"}, "RANK is 2, but WORLD_SIZE is 2"),
        ({"SLURM_STEP_NUM_TASKS": "8"}, "srun has started 8 processes"),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "mpirun has started 4 processes"),
    ],
)
def test_another_launch_is_an_error_that_names_torchrun(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OptionError, match=message) as caught:
        rank_and_world_size()
    assert "torchrun --nproc-per-node" in str(caught.value)


def test_thdpack_train_under_srun_exits_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainer.train import main

    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "8")
    with pytest.raises(SystemExit) as stopped:
        main(["esm2-tiny", "--data", "x", "--out", "y"])
    assert stopped.value.code == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert errors[0].startswith("thdpack train: srun has started 8 processes")
