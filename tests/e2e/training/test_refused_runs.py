"""Runs that are refused because of another dataset, another model or invalid options."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from schemas.manifest import Manifest
from schemas.models import ESM2_MODELS
from tests.helpers.data.corpus import read_manifest
from tests.helpers.models import esm
from tests.helpers.processes.ranks import Job
from tests.helpers.processes.runs import (
    arguments,
    cut,
    losses,
    start,
    train,
)
from trainer.model import huggingface
from trainer.train import main


def test_ranks_that_do_not_share_the_folder_of_the_run_are_refused(
    many_shards: Path, tmp_path: Path
) -> None:
    program = """
import os, sys
from trainer.train import main
main([word.replace("RANK", os.environ["RANK"]) for word in sys.argv[1:]])
"""
    with Job(program, arguments(many_shards, tmp_path / "node-RANK"), ranks=2) as job:
        job.wait()
    assert [rank.returncode for rank in job.ranks] == [1, 1], job.said
    assert job.said.count("storage that all nodes share") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", "5"), "holds a run with --seed 0, not 5"),
        (
            ("--layers", "3", "--hidden-size", "64"),
            " (--layers 2, not 3; --hidden-size 32, not 64): give the model of that run, or choose",
        ),
        (("--buckets-per-step", "8"), "2 buckets per step, not 8"),
        (("--mask-probability", "0.2"), "--mask-probability 0.15, not 0.2"),
        (("--resume", "never"), "--resume is never"),
        (
            ("--buckets-per-step", "0", "--tokens-per-step", "4096"),
            "which --tokens-per-step 4096 cannot change",
        ),
        (("--init-from", "/nowhere"), "--init-from is /nowhere, which does not exist"),
        (("--init-from", "/"), "holds a run that did not start from /: choose another --out"),
        (("--gelu", "tanh"), "--gelu erf, not tanh"),
    ],
)
def test_a_run_does_not_resume_with_options_that_change_it(
    many_shards: Path,
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    out = shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(SystemExit) as stopped:
        train(many_shards, out, *options)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_a_run_is_refused_if_the_disk_of_its_cache_cannot_hold_its_shards(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The manifest says that a shard has 10^18 bytes."""
    manifest = read_manifest(many_shards)
    first, *others = manifest.shards["train"]
    shards = {**manifest.shards, "train": (replace(first, bytes=10**18), *others)}
    data = Path(shutil.copytree(many_shards, tmp_path / "data"))
    (data / "manifest.json").write_text(replace(manifest, shards=shards).to_json())
    cache = ("--cache-dir", str(tmp_path / "cache"), "--cache-bytes", str(2 * 10**18))
    with pytest.raises(SystemExit) as stopped:
        train(data, tmp_path / "run", *cache)
    assert stopped.value.code == 1
    assert "--cache-dir, or lower --cache-bytes" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "/nowhere"), "/nowhere"),
        (("--buckets-per-step", "3", "--buckets-per-micro-batch", "2"), "do not divide"),
        (("--backend", "te"), "needs an NVIDIA GPU"),
        (("--precision", "fp8-delayed", "--backend", "torch"), "needs --backend te"),
        (
            ("--precision", "mxfp8"),
            "--precision mxfp8 needs a GPU of compute capability 10.0 to below 12.0 (Blackwell), "
            "but this machine has",
        ),
        (
            ("--precision", "fp32", "--precision-layers", "inner:1"),
            "--precision is fp32: remove --precision-layers",
        ),
        (("--precision", "fp32", "--quantized-init"), "--quantized-init stores weights in FP8"),
        (
            ("--backend", "torch", "--tensor-statistics", "2"),
            "--tensor-statistics needs the layers of Transformer Engine",
        ),
        (("--init-from", "/nowhere"), "hf download NAME --local-dir FOLDER"),
        (
            ("--init-from", "facebook/esm2_t6_8M_UR50D"),
            "hf download facebook/esm2_t6_8M_UR50D --local-dir esm2_t6_8M_UR50D",
        ),
        (("--hidden-size", "30"), "--hidden-size is 30, not an even multiple of --heads 4"),
    ],
)
def test_invalid_options_print_one_error_line(
    many_shards: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    if torch.cuda.is_available() and "te" in options:
        pytest.skip("this machine has a GPU, so these options may be valid")
    with pytest.raises(SystemExit) as stopped:
        train(many_shards, tmp_path / "runs" / "first", *options)
    missing = "/nowhere" in options or "facebook/esm2_t6_8M_UR50D" in options
    assert stopped.value.code == (1 if missing else 2)
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not list(tmp_path.rglob("*")), "a refused run left files or folders"


def test_a_dataset_with_padded_sequences_is_refused(
    build_here: Callable[..., Manifest],
    sample: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    build_here(sample, tmp_path / "padded", length_multiple=8)
    with pytest.raises(SystemExit):
        train(tmp_path / "padded", tmp_path / "run")
    assert "attend to padding" in capsys.readouterr().err


def test_a_resume_refuses_another_dataset_and_accepts_a_moved_copy_of_its_own(
    build_here: Callable[..., Manifest],
    many_shards: Path,
    sample: Path,
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    build_here(sample, tmp_path / "other", capacity=512, max_seq_len=256)
    with pytest.raises(SystemExit) as stopped:
        train(tmp_path / "other", cut(whole, tmp_path / "run", 8))
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert f"a run on another dataset, {many_shards}: use the --data of that run" in said
    moved = shutil.copytree(many_shards, tmp_path / "moved")
    assert losses(train(moved, cut(whole, tmp_path / "again", 8))) == losses(whole)


def test_a_resume_says_that_the_dataset_has_changed_if_its_path_is_the_same(
    build_here: Callable[..., Manifest],
    many_shards: Path,
    sample: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = shutil.copytree(many_shards, tmp_path / "data")
    run = train(data, tmp_path / "run", "--warmup-steps", "0", steps=1)
    shutil.rmtree(data)
    build_here(sample, data, capacity=512, max_seq_len=256)
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        train(data, run, "--warmup-steps", "0", steps=2)
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert f"{run} holds the state of a run on {data}, which has changed since" in said
    assert "--variants N --out OTHER" in said
    assert said.count("\n") == 1


def test_only_the_first_rank_prints_an_error_that_all_ranks_find(tmp_path: Path) -> None:
    with start(tmp_path / "none", tmp_path / "run", ranks=2) as job:
        job.wait()
    assert [rank.returncode for rank in job.ranks] == [1, 1], job.said
    [line] = job.said.splitlines()
    assert line.startswith(f"thdpack train: {tmp_path / 'none'}: there is no such folder")


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_summary_of_torchrun_contains_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    with start(tmp_path / "none", tmp_path / "run", ranks=ranks) as job:
        job.wait()
    failure = ProcessFailure(local_rank=0, pid=job.pid, exitcode=1, error_file=str(file))
    summary = str(ChildFailedError("thdpack", {0: failure}))
    assert f"traceback : {tmp_path / 'none'}: there is no such folder: check the path" in summary


def test_the_summary_of_torchrun_says_that_the_command_line_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    with pytest.raises(SystemExit):
        main(["esm2-8m", "--no-such-option"])
    assert "the command line is wrong" in json.loads(file.read_text())["message"]["message"]


@pytest.mark.parametrize("local_rank", ["0", "1"])
def test_only_the_first_rank_of_a_node_prints_the_error_of_a_wrong_command_line_at_once(
    local_rank: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    printed_before_waits: list[str] = []
    monkeypatch.setattr(
        time, "sleep", lambda seconds: printed_before_waits.append(capsys.readouterr().err)
    )
    with pytest.raises(SystemExit):
        main(["esm2-8m", "--data", "d", "--steps", "0"])
    assert printed_before_waits == ([] if local_rank == "0" else [""])
    assert "--steps is 0" in capsys.readouterr().err  # a running rank prints it later


def test_weights_of_another_preset_are_refused_and_the_error_names_their_preset(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    esm(ESM2_MODELS["esm2-8m"]).save_pretrained(tmp_path / "weights")
    words = ["--data", str(many_shards), "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit):
        main(["esm2-35m", *words, "--init-from", str(tmp_path / "weights")])
    said = capsys.readouterr().err
    assert "is a model of 6 layers, hidden size 320 (esm2-8m), but the command asks for 12" in said
    flags = "--layers, --hidden-size, --heads, --ffn-size"
    assert f"use the preset esm2-8m without flags that change its shape ({flags})" in said
    assert not (tmp_path / "run").exists()


def test_wrong_datasets_and_batches_are_reported_before_the_weights_of_init_from_are_read(
    many_shards: Path,
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(huggingface, "load", lambda folder: pytest.fail("the weights were read"))
    start = ("--init-from", str(whole / "export"))
    for data, options, message in (
        (tmp_path / "none", (), f"{tmp_path / 'none'}"),
        (many_shards, ("--buckets-per-step", "3", "--buckets-per-micro-batch", "2"), "not divide"),
    ):
        with pytest.raises(SystemExit):
            train(data, tmp_path / "run", *start, *options)
        assert message in capsys.readouterr().err
