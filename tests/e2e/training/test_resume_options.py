"""A resumed run refuses or announces options that have changed."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.helpers.processes.runs import arguments, cut, losses, train
from trainer.config import PRESETS, OptimizerOptions
from trainer.start.resume_options import __doc__ as table
from trainer.start.resume_options import with_warmup_of
from trainer.train import main

CHANGED = {
    "steps": "9",
    "learning_rate": "0.003",
    "schedule": "cosine",
    "warmup_steps": "3",
    "final_fraction": "0.2",
    "decay_until": "0.8",
    "decay_fraction": "0.2",
    "beta1": "0.8",
    "beta2": "0.9",
    "epsilon": "1e-06",
    "weight_decay": "0.2",
    "clip_norm": "2.0",
    "max_bad_steps": "7",
}


def test_every_changed_option_of_the_optimizer_is_announced(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = {"optimizer", "steps_given", "rate_given", "epochs"}
    assert {*CHANGED, *others} == {field.name for field in fields(OptimizerOptions)}
    out = cut(whole, tmp_path / "run", 8)
    before = json.loads((out / "options.json").read_text())["optimizer"]
    flags = [
        word for name, value in CHANGED.items() for word in (f"--{name.replace('_', '-')}", value)
    ]
    train(many_shards, out, *flags, "--precision", "bf16")
    said = capsys.readouterr().err
    for name, value in {**CHANGED, "precision": "bf16"}.items():
        then = before.get(name, "fp32")
        assert f"--{name.replace('_', '-')} {then} → {value}" in said
    train(many_shards, out, *flags, "--precision", "bf16")
    assert "changed from here" not in capsys.readouterr().err


def test_a_resume_without_the_learning_rate_keeps_that_of_the_run(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    train(many_shards, out, "--learning-rate", "1e-5", steps=1)
    capsys.readouterr()
    main([*arguments(many_shards, out, steps=2), "--dry-run"])
    assert ", changed from here: --steps 1 → 2: " in capsys.readouterr().out
    main([*arguments(many_shards, out, steps=2), "--lr", "2e-5", "--dry-run"])
    assert "--steps 1 → 2, --learning-rate 1e-05 → 2e-05: " in capsys.readouterr().out


def test_a_resume_with_another_optimizer_is_refused(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = cut(whole, tmp_path / "run", 8)
    before = contents(out)
    with pytest.raises(SystemExit):
        train(many_shards, out, "--optimizer", "muon")
    said = "holds a run with --optimizer adamw, not muon: choose another --out"
    assert said in capsys.readouterr().err
    assert contents(out) == before


def test_a_finished_run_keeps_its_files_and_announces_no_changed_option(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(whole, tmp_path / "run")
    before = contents(out)
    for steps in (12, 1):  # fewer than the warm-up of this run needs
        train(many_shards, out, "--learning-rate", "0.5", "--keep-last", "1", steps=steps)
        said = capsys.readouterr().err
        assert f"the run has done 16 steps, more than --steps {steps} (a larger" in said
        assert "changed from here" not in said
        assert "warm-up" not in said
        assert contents(out) == before


def test_a_resume_with_more_steps_announces_the_next_and_the_last_learning_rate(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train(many_shards, shutil.copytree(whole, tmp_path / "run"), steps=18)
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    rates = {line["step"]: line["learning_rate"] for line in lines if line["kind"] == "train"}
    said = f"{rates[17]:.2e} in step 17, after {rates[16]:.2e} in step 16"
    assert f"schedule of 18 steps from here: {said}\n" in capsys.readouterr().err


def test_a_resume_with_epochs_is_a_resume_with_their_number_of_steps(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = json.loads((many_shards / "manifest.json").read_text())
    buckets = manifest["splits"]["train"]["buckets"]
    words = arguments(many_shards, cut(whole, tmp_path / "run", 8), "--epochs", f"{18 / buckets}")
    at = words.index("--steps")
    main([*words[:at], *words[at + 2 :]])  # steps of 2 buckets
    said = capsys.readouterr().err
    assert "resuming from step 8 of 9, changed from here: --steps 16 → 9: " in said
    assert "steps: 9, which is " in said
    assert "follows the schedule of 9 steps from here" in said


def test_a_step_of_more_than_an_epoch_is_announced_only_in_a_new_run(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = json.loads((many_shards / "manifest.json").read_text())
    buckets = manifest["splits"]["train"]["buckets"] + 1
    for _ in range(2):
        words = ("--buckets-per-step", str(buckets), "--warmup-steps", "0")
        train(many_shards, tmp_path / "run", *words, steps=1)
    said = capsys.readouterr().err
    assert said.count(f"warning: a step of {buckets} buckets (") == 1


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the content of each file of a folder, by path in the folder."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder): path.read_bytes() for path in paths}


def test_a_run_with_imported_weights_resumes_only_with_the_same_gelu(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ("--init-from", str(whole / "export"), "--warmup-steps", "0")
    out = train(many_shards, tmp_path / "run", *start, steps=1)
    with pytest.raises(SystemExit):
        train(many_shards, out, *start, "--gelu", "tanh", steps=2)
    assert "holds a run with --gelu erf, not tanh" in capsys.readouterr().err
    same = whole / "export" / ".." / "export"  # another spelling of the same folder
    train(many_shards, out, "--init-from", str(same), *start[2:], steps=2)


def test_a_resume_with_another_batch_is_refused_and_the_error_gives_the_batch_of_the_run(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = cut(whole, tmp_path / "run", 8)
    state = json.loads((out / "options.json").read_text())
    buckets = state["data"]["buckets_per_step"]
    for words, said in (
        (
            ("--buckets-per-step", "0", "--tokens-per-step", "77"),
            "which --tokens-per-step 77 cannot change: omit this option",
        ),
        (("--buckets-per-step", str(2 * buckets)), f"not {2 * buckets}: choose another --out"),
    ):
        with pytest.raises(SystemExit):
            train(many_shards, out, *words)
        message = capsys.readouterr().err
        assert f"{out} holds a run of {buckets} buckets per step, {said}" in message


def test_a_resume_is_refused_if_the_warm_up_of_the_run_is_too_long_for_the_new_steps() -> None:
    _, preset = PRESETS["esm2-tiny"]
    before = replace(preset, optimizer=replace(preset.optimizer, warmup_steps=10))
    options = replace(preset, optimizer=replace(preset.optimizer, steps=6))
    said = "holds a run with a warm-up of 10 steps, chosen for --steps 100 and too long for --ste"
    with pytest.raises(ValueError, match=said):
        with_warmup_of(before, options, 5)
    assert with_warmup_of(before, options, 6).optimizer.warmup == 0  # no step is left


def test_a_resume_without_a_number_of_steps_keeps_the_number_of_the_run(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = cut(whole, tmp_path / "run", 12)
    words = arguments(many_shards, out)
    at = words.index("--steps")
    main([*words[:at], *words[at + 2 :]])
    assert "resuming from step 12 of 16:" in capsys.readouterr().err
    assert max(losses(out)) == json.loads((out / "options.json").read_text())["optimizer"]["steps"]


def test_the_training_guide_contains_the_table_of_the_module_resume_options() -> None:
    assert table is not None
    documented = (Path(__file__).parents[3] / "docs" / "guides" / "training.md").read_text()
    for row in table.splitlines():
        if row.startswith("|"):
            assert row in documented
