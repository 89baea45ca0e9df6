"""Run the commands of the fine-tuning quickstart. A random model replaces the downloaded model."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from schemas.models import ModelOptions
from tests.helpers.models import esm
from tests.helpers.pages import shell_commands
from tests.helpers.processes.command_line import REPO, Run
from tests.helpers.processes.runs import losses
from trainer.train import main

PAGE = "docs/quickstart-finetune.md"
SMALL = ModelOptions(layers=1, hidden_size=16, heads=2, ffn_size=16)
SHAPE = ["--layers", "1", "--hidden-size", "16", "--heads", "2", "--ffn-size", "16"]


def test_the_fine_tuning_quickstart_runs_from_fasta_to_embeddings(
    run: Run,
    sample: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    numerics: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trainer.monitoring.run_time._ENOUGH_SECONDS", 0.0)
    monkeypatch.setattr("trainer.monitoring.run_time._SLOW_STEPS", 0)
    (tmp_path / "data").mkdir()
    shutil.copy(sample, tmp_path / "data" / "sample.fasta")
    build, train = (
        next(words[1:] for words in shell_commands(PAGE, "thdpack") if words[1] == name)
        for name in ("preprocess", "train")
    )
    here = [str(tmp_path / word) if word.startswith("data/") else word for word in build]
    assert run(*here).returncode == 0  # `run` starts commands in the root of the repository
    esm(SMALL).save_pretrained("esm2_8m")
    short = {"20": "2", "2": "1", "10": "1"}
    words = [short.get(word, word) for word in train[1:]]
    with pytest.raises(SystemExit):
        main(words)
    said = capsys.readouterr().err
    assert "esm2_8m is a model of 1 layer, hidden size 16, but the command asks for 6 lay" in said
    assert f"use {' '.join(SHAPE)}, or the weights of another model" in said
    main([*words, *SHAPE])
    assert sorted(losses(tmp_path / "runs" / "tuned", "valid")) == [0, 1, 2]
    said = capsys.readouterr().err
    assert "step 0 · validation: loss" in said
    assert "2 buckets of 4,096 tokens per step" in said
    assert "· 88 buckets per epoch, 6 for validation ·" in said
    assert "the model has the shape of esm2_8m: 1 layer, hidden size 16\n" in said
    assert said.count("1 more step at ") == 1
    assert "first, validating the weights of --init-from on the valid split" in said
    longer = words[: words.index("--steps")]
    main([*longer, *SHAPE, "--tokens-per-step", "8192", "--epochs", "20", "--dry-run"])
    assert "steps: 880, which is 20 epochs of the data (--epochs 20)\n" in capsys.readouterr().out
    assert "880 for 20 epochs of the sample" in (REPO / PAGE).read_text()
    [code] = re.findall(r"```python\n(.*?)```", (REPO / PAGE).read_text(), flags=re.DOTALL)
    exec(compile(code, PAGE, "exec"), {})
    assert "torch.Size([2, 16])" in capsys.readouterr().out
