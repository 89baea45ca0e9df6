"""A run also exports the model with the best validation loss, if it is not the last model."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.processes.command_line import preprocess
from tests.helpers.processes.runs import ROUNDING, losses, start, train

DONE = "done: {0}/export loads with transformers' AutoModelForMaskedLM; the best validation loss is"


def test_the_model_with_the_best_validation_loss_is_exported_if_it_is_not_the_last(
    many_shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All validation losses except that of step 8 are raised by 1, so that step 8 is the best."""
    import trainer.run

    measured = trainer.run.validate
    found: list[float] = []

    def only_the_second_is_good(*arguments: object) -> object:
        result = measured(*arguments)  # type: ignore[arg-type]
        found.append(result.loss)
        more = 0.0 if len(found) == 2 else 1.0
        return trainer.run.replace(result, loss=result.loss + more)

    with monkeypatch.context() as patched:
        patched.setattr(trainer.run, "validate", only_the_second_is_good)
        out = train(many_shards, tmp_path / "run")
    best = out / "export-best" / "model.safetensors"
    line = f"{DONE.format(out)} {found[1]:.4f}, of step 8, whose model is in {best.parent}\n"
    assert line in capsys.readouterr().err
    again = train(
        many_shards, tmp_path / "again", "--init-from", f"{best.parent}", "--warmup-steps", "0",
        steps=1,
    )  # fmt: skip
    assert losses(again, "valid")[0] == pytest.approx(found[1], abs=ROUNDING)
    assert abs(found[1] - found[3]) > 10 * ROUNDING
    exported = best.read_bytes()
    assert exported != (out / "export" / "model.safetensors").read_bytes()

    shutil.rmtree(best.parent)
    with start(many_shards, out, "--shard", "full", ranks=2) as job:
        assert f"of step 8, whose model is in {best.parent}" in job.finish()
    assert best.read_bytes() == exported

    # an evaluation on another split is not compared with validations on the split of the run
    capsys.readouterr()
    train(many_shards, out, "--valid-split", "test")
    assert line in capsys.readouterr().err

    gone = shutil.copytree(out, tmp_path / "gone")
    shutil.rmtree(gone / "checkpoints" / "step-00000008")
    train(many_shards, gone)
    assert f"{DONE.format(gone)} {found[1]:.4f}, of step 8\n" in capsys.readouterr().err
    assert not (gone / "export-best").exists()

    train(many_shards, out, steps=20)
    said = capsys.readouterr().err
    assert f"{DONE.format(out)} {losses(out, 'valid')[20]:.4f}, of step 20\n" in said
    assert not best.parent.exists()


def test_without_a_validation_the_last_line_names_no_loss(
    many_shards: Path, tmp_path: Path, sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    preprocess(sample, data, "--split", "train=1", "--capacity", "4096")
    train(data, tmp_path / "run", "--warmup-steps", "0", steps=1)
    assert capsys.readouterr().err.endswith("transformers' AutoModelForMaskedLM\n")
