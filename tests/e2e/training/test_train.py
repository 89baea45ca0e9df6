"""Runs of the trainer as users start them: losses, validation, export, profile."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

from pipeline.reader import ShardReader
from schemas.vocabulary import ESM2
from tests.helpers.data.decoys import write_decoys
from tests.helpers.data.many_shards import CAPACITY
from tests.helpers.processes.command_line import preprocess
from tests.helpers.processes.ranks import Job
from tests.helpers.processes.runs import (
    ROUNDING,
    STEPS,
    arguments,
    losses,
    train,
)
from trainer.config import ComputeOptions
from trainer.distributed.topology import single_process
from trainer.masking import Masker
from trainer.model import huggingface
from trainer.model.esm2 import SequenceLayout
from trainer.model.initialize import build, fill
from trainer.validate import MASK_SEED

PLAIN = """
import sys
for name in {"trainer", "pipeline", "packers", "schemas", *sys.modules}:
    if name.partition(".")[0] in ("trainer", "pipeline", "packers", "schemas"):
        sys.modules[name] = None
from transformers import AutoModelForMaskedLM
AutoModelForMaskedLM.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])
"""
"""Program that loads and saves a model. It cannot import our packages."""
AS_MODULE = """
import os, runpy, sys
for name in list(sys.modules):
    if name.partition(".")[0] in ("trainer", "pipeline", "packers", "schemas"):
        del sys.modules[name]
os.chdir(sys.argv[1])
sys.path.insert(0, sys.argv[1])
sys.argv = ["thdpack", "train", *sys.argv[2:]]
runpy.run_module("thdpack", run_name="__main__", alter_sys=True)
"""
"""Program that runs `python -m thdpack train` in the folder named by its first argument."""


def test_a_run_lowers_the_loss_and_writes_metrics_and_checkpoints(whole: Path) -> None:
    found = losses(whole)
    assert list(found) == list(range(1, STEPS + 1))
    assert found[STEPS] < found[1] - 0.1
    assert list(losses(whole, "valid")) == [4, 8, 12, 16]
    assert sorted(path.name for path in (whole / "checkpoints").iterdir()) == [
        "latest",
        "step-00000004",
        "step-00000008",
        "step-00000012",
        "step-00000016",
    ]
    line = json.loads((whole / "metrics.jsonl").read_text().splitlines()[0])
    assert line["tokens"] > 1.5 * CAPACITY  # the batch has two buckets
    assert line["tokens_per_second"] > 0
    assert 0 <= line["data_wait"] < 1
    assert line["overflow"] == line["skipped"] == 0
    assert datetime.fromisoformat(line["time"]).tzinfo is UTC
    assert line["perplexity"] == pytest.approx(2.718281828459045 ** line["loss"])


def test_two_ranks_train_in_a_folder_whose_packages_have_the_names_of_ours(
    many_shards: Path, tmp_path: Path
) -> None:
    write_decoys(tmp_path)
    words = arguments(many_shards, tmp_path / "run", "--warmup-steps", "0", steps=1)
    Job(AS_MODULE, [str(tmp_path), *words], ranks=2).finish()
    assert list(losses(tmp_path / "run")) == [1]


def test_merged_micro_batches_give_the_same_losses_within_rounding(
    many_shards: Path, whole: Path, tmp_path: Path
) -> None:
    out = train(many_shards, tmp_path / "run", "--buckets-per-micro-batch", "2")
    assert max(abs(losses(out)[step] - loss) for step, loss in losses(whole).items()) < ROUNDING


def test_recomputation_gives_exactly_the_same_losses(
    many_shards: Path, whole: Path, tmp_path: Path
) -> None:
    assert losses(train(many_shards, tmp_path / "run", "--recompute", "full")) == losses(whole)


def test_a_run_stops_with_a_message_after_three_steps_without_a_finite_loss(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        train(
            many_shards,
            tmp_path / "run",
            "--learning-rate",
            "1e30",
            "--warmup-steps",
            "0",
            "--max-bad-steps",
            "3",
        )
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert "not finite" in said
    assert "--learning-rate" in said
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert lines[-1]["bad_in_a_row"] >= 3
    assert lines[-1]["skipped"] >= 3


def test_the_metrics_of_a_step_have_the_epoch_of_its_last_bucket(
    many_shards: Path, tmp_path: Path
) -> None:
    with ShardReader(many_shards) as reader:
        buckets = reader.manifest.splits["train"].buckets
        batch = buckets // 2 + 1  # the second step begins in one epoch and ends in the next
        last = [[next(reader).epoch for _ in range(batch)][-1] for _ in range(2)]
    words = ("--buckets-per-step", str(batch), "--warmup-steps", "0", "--validate-every", "0")
    run = train(many_shards, tmp_path / "run", *words, steps=2)
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    assert [line["epoch"] for line in lines if line["kind"] == "train"] == last == [0, 1]


def test_plain_transformers_loads_an_export_and_saves_the_same_weights(
    whole: Path, many_shards: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    with Job(PLAIN, [str(whole / "export"), str(tmp_path / "back")]) as job:
        job.finish()
    options, exported = huggingface.load(whole / "export")
    again, back = huggingface.load(tmp_path / "back")
    assert options == again
    assert exported.keys() == back.keys()
    for name, tensor in exported.items():
        assert torch.equal(tensor, back[name]), name
    tokenizer = AutoTokenizer.from_pretrained(whole / "export")
    assert tokenizer("MKTAYX")["input_ids"] == [0, 20, 15, 11, 5, 19, 24, 2]
    plain = AutoModelForMaskedLM.from_pretrained(whole / "export")
    assert type(plain).__name__ == "EsmForMaskedLM"
    fine_tuned = train(
        many_shards,
        tmp_path / "fine",
        "--init-from",
        str(tmp_path / "back"),
        "--warmup-steps",
        "0",
        steps=1,
    )
    # the imported weights are validated before the first step
    start = losses(fine_tuned, "valid")[0]
    assert start == pytest.approx(losses(whole, "valid")[STEPS], abs=ROUNDING)
    # step 1 has the loss of the imported weights, too, but masks other tokens than validation does
    assert abs(losses(fine_tuned)[1] - losses(whole)[STEPS]) < 0.2


@pytest.mark.parametrize("split", ["valid", "test"])
def test_the_validation_loss_and_accuracy_equal_those_of_a_plain_loop_over_the_split(
    many_shards: Path, whole: Path, tmp_path: Path, split: str
) -> None:
    out = shutil.copytree(whole, tmp_path / "run")
    if split == "test":
        train(many_shards, out, "--valid-split", "test")
    options, tensors = huggingface.load(out / "export")
    model = build(options, ComputeOptions(backend="torch", precision="fp32"))
    fill(model, tensors, seed=0, topology=single_process(torch.device("cpu")))
    reader = ShardReader(many_shards, split=split)
    masker = Masker(
        ESM2,
        seed=MASK_SEED,
        probability=0.15,
        epoch_buckets=len(reader),
        device=torch.device("cpu"),
    )
    loss, correct, tokens = 0.0, 0, 0
    for number in range(len(reader)):
        bucket = reader[number]
        masked = masker(torch.tensor(bucket.input_ids), torch.tensor([number]))
        real = masked.labels >= 0
        with torch.no_grad():
            logits = model(
                masked.input_ids,
                SequenceLayout(torch.tensor(bucket.cu_seqlens), bucket.max_seqlen),
                masked.index[real],
            )
        loss += float(
            torch.nn.functional.cross_entropy(logits, masked.labels[real], reduction="sum")
        )
        correct += int((logits.argmax(1) == masked.labels[real]).sum())
        tokens += int(real.sum())
    found = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert len(reader) > 1
    assert (found["kind"], found["step"], found["tokens"]) == (split, STEPS, tokens)
    assert found["loss"] == pytest.approx(loss / tokens, rel=1e-6)
    assert found["accuracy"] == pytest.approx(correct / tokens, rel=1e-9)


def test_a_finished_run_is_evaluated_once_on_the_test_split_and_changes_nothing_else(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(whole, tmp_path / "run")
    before = files_of(out)
    for _ in range(2):
        train(many_shards, out, "--valid-split", "test")
    said = capsys.readouterr().err
    assert said.count(f"step {STEPS} · validation on the test split: loss") == 1
    assert "for validation, of the test split" in said
    assert said.count("evaluating the finished run on the test split") == 1
    assert "not validated yet" not in said
    assert list(losses(out, "test")) == [STEPS]
    train(many_shards, out)  # does not validate again on the valid split
    found = files_of(out)
    metrics = found.pop("metrics.jsonl")
    assert metrics.startswith(before.pop("metrics.jsonl"))
    assert metrics.count(b"\n") == len(losses(whole)) + len(losses(whole, "valid")) + 1
    assert found == before


def files_of(out: Path) -> dict[str, bytes]:
    """Return the content of all files of a run, except its lock, by name."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and "lock" not in path.name
    }


def test_an_unfinished_run_refuses_to_validate_on_another_split(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(SystemExit):
        train(many_shards, out, "--valid-split", "test", steps=STEPS + 1)
    said = capsys.readouterr().err
    assert (
        "holds an unfinished run with --valid-split valid, not test: finish the run first" in said
    )


def test_validating_on_an_empty_test_split_is_an_error(
    sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = preprocess(sample, tmp_path / "sample")
    with pytest.raises(SystemExit):
        train(dataset, tmp_path / "run", "--valid-split", "test", steps=1)
    assert "is empty: build the dataset with thdpack preprocess --split" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_demanding_a_cuda_graph_without_a_gpu_is_an_error_that_gives_the_reason(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        train(many_shards, tmp_path / "run", "--cuda-graph", "on", steps=2)
    assert "--cuda-graph on is impossible: there is no NVIDIA GPU" in capsys.readouterr().err


def test_options_json_has_the_values_chosen_for_auto_and_a_short_run_announces_its_warm_up(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train(many_shards, tmp_path / "run", steps=20)
    said = json.loads((out / "options.json").read_text())
    assert said["compute"]["cuda_graph"] == "off"
    assert said["compute"]["shard"] == "none"
    assert said["data"]["buckets_per_micro_batch"] == 1
    assert said["optimizer"]["warmup_steps"] == 2
    assert "warm-up of 2 steps instead of 2,000" in capsys.readouterr().err


def test_the_option_profile_writes_a_trace(many_shards: Path, tmp_path: Path) -> None:
    out = train(many_shards, tmp_path / "run", "--profile", steps=14)
    assert json.loads((out / "trace.json").read_text())["traceEvents"]
