"""The best validation loss of a run is finite. If the last one is not finite, the run fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.processes.runs import train

DIVERGES = (
    "--learning-rate",
    "1e30",
    "--warmup-steps",
    "0",
    "--max-bad-steps",
    "100",
    "--validate-every",
    "2",
)
"""Options of a run whose first step makes weights of about 1e30. The run skips all later steps."""


def test_a_run_fails_if_its_last_validation_loss_is_not_finite(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    for _ in range(2):  # a repeated command fails in the same way
        with pytest.raises(SystemExit) as stopped:
            train(many_shards, out, *DIVERGES, steps=4)
        assert stopped.value.code == 1
        said = capsys.readouterr().err
        assert "the loss of the last validation (step 4 or earlier) is not finite" in said
        assert "start again in another --out (no validation loss was finite)" in said
        assert "done:" not in said
    assert not (out / "export").exists()
    state = json.loads((out / "checkpoints" / "step-00000004" / "state.json").read_text())
    assert (state["best"], state["sound"]) == ({"loss": None, "checkpoint": ""}, False)


@pytest.mark.parametrize("every", [0, 1])
def test_too_many_skipped_steps_end_a_run_with_a_remedy_that_suits_its_checkpoints(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], every: int
) -> None:
    words = ("--max-bad-steps", "2", "--validate-every", "0", "--checkpoint-every", str(every))
    with pytest.raises(SystemExit) as stopped:
        train(many_shards, tmp_path / "run", *DIVERGES[:4], *words)
    assert stopped.value.code == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert (
        "were skipped, because their loss or gradient was not finite (--max-bad-steps is 2); "
        in said
    )
    assert "run the same command with a lower --learning-rate (it is 1e+30)" in said
    assert ("there is no checkpoint yet: to start again, run" in said) is not bool(every)
    assert said.endswith("; if steps are skipped again, start again in another --out") is bool(
        every
    )


def test_a_finite_validation_loss_after_a_nan_becomes_the_best(
    many_shards: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replace the first validation loss by NaN. Weights that really diverged would not recover."""
    import trainer.run

    measured = trainer.run.validate
    found = []

    def first_is_bad(*arguments: object) -> object:
        result = measured(*arguments)  # type: ignore[arg-type]
        found.append(result.loss)
        return result if found[1:] else trainer.run.replace(result, loss=float("nan"))

    monkeypatch.setattr(trainer.run, "validate", first_is_bad)
    out = train(many_shards, tmp_path / "run")
    state = json.loads((out / "checkpoints" / "step-00000016" / "state.json").read_text())
    assert state["best"]["loss"] == min(found[1:])
    assert (out / "export").exists()


def test_a_run_warns_twice_of_a_training_loss_far_above_that_of_a_guess(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rate = ("--learning-rate", "10", "--warmup-steps", "0")
    train(many_shards, tmp_path / "run", *rate, steps=6)
    said = capsys.readouterr().err
    remedy = "with a lower --learning-rate (it is 10) or a longer warm-up (--warmup-steps is 0)"
    assert said.count(remedy) == 2
    assert said.count("but a random guess has 3.5: the training probably diverges. ") == 1
    assert "but a random guess has 3.5: this model is useless. " in said.splitlines()[-1]
    train(many_shards, tmp_path / "good", steps=2)
    assert "warning: the loss" not in capsys.readouterr().err
