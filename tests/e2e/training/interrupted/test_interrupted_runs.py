"""Runs that are killed, resumed, repeated, or reset to an earlier checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.helpers.processes.runs import EVERY, STEPS, await_step, cut, losses, start, train


@pytest.mark.parametrize("step", [4, 12])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    many_shards: Path, whole: Path, tmp_path: Path, step: int
) -> None:
    out = train(many_shards, cut(whole, tmp_path / "run", step))
    assert losses(out) == losses(whole)
    assert losses(out, "valid") == losses(whole, "valid")
    assert (out / "export" / "model.safetensors").read_bytes() == (
        whole / "export" / "model.safetensors"
    ).read_bytes()


def test_a_run_killed_several_times_has_the_losses_of_an_uninterrupted_run(
    many_shards: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    for step in (3, 7, 12):
        with start(many_shards, out, "--checkpoint-every", "2") as job:
            # The end of this block sends SIGKILL, perhaps while a checkpoint is written.
            await_step(job, out, step)
    start(many_shards, out, "--checkpoint-every", "2").finish()
    assert losses(out) == losses(whole)


def test_files_of_an_unfinished_save_are_removed_and_the_last_checkpoint_is_used(
    many_shards: Path, whole: Path, tmp_path: Path
) -> None:
    out = cut(whole, tmp_path / "run", 8)
    partial = out / "checkpoints" / "step-00000012.partial"
    partial.mkdir()
    (partial / "__0_0.distcp").write_bytes(b"half")
    (out / "checkpoints" / "latest.partial").write_text("step-000")
    (out / "options.json").write_text("")  # the trainer does not read this file
    train(many_shards, out)
    assert not list((out / "checkpoints").glob("*.partial"))
    assert losses(out) == losses(whole)


def test_a_finished_run_is_not_repeated_and_a_longer_run_keeps_its_last_and_its_best_checkpoint(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train(many_shards, shutil.copytree(whole, tmp_path / "run"), "--keep-last", "1")
    said = capsys.readouterr().err
    assert said.startswith("nothing is left to train: the run has done 16 steps (a larger")
    assert "done: " in said
    assert "resuming" not in said
    assert losses(out) == losses(whole)
    longer = train(many_shards, out, "--keep-last", "1", steps=STEPS + EVERY)
    best = min(losses(longer, "valid").items(), key=lambda item: item[1])[0]
    kept = {int(path.name[5:]) for path in (out / "checkpoints").glob("step-*")}
    assert kept == {STEPS + EVERY, best}


def test_the_best_model_is_saved_even_without_regular_checkpoints(
    many_shards: Path, tmp_path: Path
) -> None:
    out = train(
        many_shards,
        tmp_path / "run",
        "--validate-every",
        "3",
        "--checkpoint-every",
        "0",
        "--keep-last",
        "1",
    )
    state = json.loads((out / "checkpoints" / "step-00000016" / "state.json").read_text())
    found = losses(out, "valid")
    assert state["best"] == {
        "loss": min(found.values()),
        "checkpoint": f"step-{min(found, key=lambda step: found[step]):08}",
    }
    assert (out / "checkpoints" / state["best"]["checkpoint"]).is_dir()


def test_resuming_from_an_earlier_checkpoint_moves_later_ones_to_another_folder(
    many_shards: Path, whole: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(whole, tmp_path / "run")
    (out / "checkpoints" / "latest").write_text("step-00000004\n")
    train(
        many_shards,
        out,
        "--keep-last",
        "1",
        "--checkpoint-every",
        "0",
        "--validate-every",
        "0",
        steps=STEPS - 2,
    )
    kept = sorted(path.name for path in (out / "checkpoints").glob("step-*"))
    assert kept[-1] == "step-00000014"  # not step 16, which the earlier run wrote
    aside = out / "checkpoints" / "after-step-00000004.1"
    assert sorted(path.name for path in aside.iterdir()) == [
        "step-00000008",
        "step-00000012",
        "step-00000016",
    ]
    for path in (whole / "checkpoints" / "step-00000016").iterdir():
        assert (aside / "step-00000016" / path.name).read_bytes() == path.read_bytes()
    assert (out / "checkpoints" / "latest").read_text().strip() == "step-00000014"
    train(many_shards, out, "--keep-last", "1")
    assert [found for step, found in losses(out).items() if step <= 4] == [
        found for step, found in losses(whole).items() if step <= 4
    ]
