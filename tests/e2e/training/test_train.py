"""Runs of the trainer as users start them: killed, signalled, on other numbers of ranks, with what they leave behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pipeline.reader import ShardReader
from schemas.manifest import Manifest
from schemas.vocabulary import ESM2
from tests.helpers.processes.ranks import Job
from tests.helpers.processes.runs import (
    EVERY,
    ROUNDING,
    STEPS,
    arguments,
    await_step,
    cut,
    losses,
    start,
    torchrun,
    train,
)
from trainer.config import ComputeOptions
from trainer.distributed.topology import single_process
from trainer.masking import Masker
from trainer.model import huggingface
from trainer.model.esm2 import SequenceLayout
from trainer.model.initialize import build, fill
from trainer.validate import MASK_SEED

LONG = "THDPACK_LONG" in os.environ
PLAIN = """
import sys
for name in {"trainer", "pipeline", "packers", "schemas", *sys.modules}:
    if name.partition(".")[0] in ("trainer", "pipeline", "packers", "schemas"):
        sys.modules[name] = None
from transformers import AutoModelForMaskedLM
AutoModelForMaskedLM.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])
"""
"""Loads and saves a model where importing anything of ours is an error."""


def test_the_loss_falls_and_everything_is_left_behind(whole: Path) -> None:
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
    assert line["tokens"] > 3 * 512
    assert line["tokens_per_second"] > 0
    assert 0 <= line["data_wait"] < 1
    assert line["overflow"] == line["skipped"] == 0
    assert line["perplexity"] == pytest.approx(2.718281828459045 ** line["loss"])


@pytest.mark.parametrize("step", [4, 12])
def test_resumed_is_uninterrupted_bit_for_bit(
    many_shards: Path, whole: Path, tmp_path: Path, step: int
) -> None:
    out = train(many_shards, cut(whole, tmp_path / "run", step))
    assert losses(out) == losses(whole)
    assert losses(out, "valid") == losses(whole, "valid")
    assert (out / "export" / "model.safetensors").read_bytes() == (
        whole / "export" / "model.safetensors"
    ).read_bytes()


def test_killed_at_any_step_it_comes_to_the_same_end(
    many_shards: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    for step in (3, 7, 12):
        with start(many_shards, out, "--checkpoint-every", "2") as job:
            await_step(
                job, out, step
            )  # then SIGKILL, perhaps while a checkpoint is written: there is one every second step
    start(many_shards, out, "--checkpoint-every", "2").finish()
    assert losses(out) == losses(whole)


def test_what_a_dead_save_left_is_cleared_and_the_good_checkpoint_is_used(
    many_shards: Path, whole: Path, tmp_path: Path
) -> None:
    out = cut(whole, tmp_path / "run", 8)
    partial = out / "checkpoints" / "step-00000012.partial"
    partial.mkdir()
    (partial / "__0_0.distcp").write_bytes(b"half")
    (out / "checkpoints" / "latest.partial").write_text("step-000")
    (out / "options.json").write_text("")  # is for people
    train(many_shards, out)
    assert not list((out / "checkpoints").glob("*.partial"))
    assert losses(out) == losses(whole)


def test_merged_micro_batches_change_nothing(
    many_shards: Path, whole: Path, tmp_path: Path
) -> None:
    out = train(many_shards, tmp_path / "run", "--buckets-per-micro-batch", "2")
    assert max(abs(losses(out)[step] - loss) for step, loss in losses(whole).items()) < ROUNDING


def test_recomputation_changes_nothing(many_shards: Path, whole: Path, tmp_path: Path) -> None:
    assert losses(train(many_shards, tmp_path / "run", "--recompute", "full")) == losses(whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_saves_and_exits_0(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    out = tmp_path / "run"

    def send() -> None:
        while not (out / "metrics.jsonl").exists() or max(losses(out), default=0) < 3:
            time.sleep(0.005)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    train(many_shards, out, "--checkpoint-every", "0", "--validate-every", "0", steps=100_000)
    sender.join()
    assert "run the same command to resume" in capsys.readouterr().err
    last = max(losses(out))
    assert (out / "checkpoints" / "latest").read_text().strip() == f"step-{last:08}"
    assert not (out / "export").exists()


def test_a_signal_to_torchrun_ends_all_ranks_at_the_same_step(
    many_shards: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    flags = (
        "--standalone",
        "--nproc-per-node",
        "2",
        "--signals-to-handle",
        "SIGTERM,SIGINT,SIGUSR1",
    )
    with torchrun(
        many_shards,
        out,
        "--checkpoint-every",
        "0",
        "--validate-every",
        "0",
        flags=flags,
        forks=not LONG,
        steps=100_000,
    ) as job:
        await_step(job, out, 3)
        job.ranks[0].send(signal.SIGUSR1)
        job.wait()  # torchrun itself exits 1: it was signalled
    assert "run the same command to resume" in job.said
    last = max(losses(out))
    assert (out / "checkpoints" / "latest").read_text().strip() == f"step-{last:08}"
    assert not list((out / "checkpoints").glob("*.partial"))


def test_a_loss_that_stays_infinite_stops_the_run_with_a_message(
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


def test_export_loads_in_plain_transformers_and_comes_back_exact(
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
    assert (
        abs(losses(fine_tuned)[1] - losses(whole)[STEPS]) < 0.2
    )  # goes on from what was learnt, on other masks


def test_a_finished_run_says_so_and_keeps_last_and_best(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train(many_shards, shutil.copytree(whole, tmp_path / "run"), "--keep-last", "1")
    assert "done" in capsys.readouterr().err
    assert losses(out) == losses(whole)
    longer = train(many_shards, out, "--keep-last", "1", steps=STEPS + EVERY)
    best = min(losses(longer, "valid").items(), key=lambda item: item[1])[0]
    kept = {int(path.name[5:]) for path in (out / "checkpoints").glob("step-*")}
    assert kept == {STEPS + EVERY, best}


def test_the_best_is_kept_also_where_no_checkpoint_was_due(
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


def test_going_back_moves_the_checkpoints_that_came_after_aside(
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
    assert kept[-1] == "step-00000014"  # and not of the run before: 16
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


def test_ranks_that_do_not_share_the_folder_are_refused(many_shards: Path, tmp_path: Path) -> None:
    program = "import os, sys; from trainer.train import main; main([a.replace('RANK', os.environ['RANK']) for a in sys.argv[1:]])"
    with Job(program, arguments(many_shards, tmp_path / "node-RANK"), ranks=2) as job:
        job.wait()
    assert [rank.returncode for rank in job.ranks] == [1, 1], job.said
    assert job.said.count("storage that all nodes share") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", "5"), "holds a run with --seed 0, not 5"),
        (("--layers", "3"), "another model"),
        (("--buckets-per-step", "8"), "4 buckets a step, not 8"),
        (("--mask-probability", "0.2"), "--mask-probability 0.15, not 0.2"),
        (("--resume", "never"), "--resume is never"),
        (("--tokens-per-step", "4096"), "--tokens-per-step 16384, not 4096"),
        (("--init-from", "/nowhere"), "did not start from /nowhere"),
        (("--gelu", "tanh"), "--gelu erf, not tanh"),
    ],
)
def test_a_run_does_not_go_on_as_another(
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
    assert stopped.value.code == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "/nowhere"), "/nowhere"),
        (("--buckets-per-step", "3", "--buckets-per-micro-batch", "2"), "do not divide"),
        (("--backend", "te"), "needs an NVIDIA GPU"),
        (("--precision", "fp8-delayed", "--backend", "torch"), "needs --backend te"),
        (
            ("--precision", "mxfp8"),
            "--precision mxfp8 needs a GPU of compute capability 10.0 to below 12.0 (Blackwell), and this machine has",
        ),
        (
            ("--precision", "fp32", "--precision-layers", "inner:1"),
            "--precision fp32 is not one: leave it out",
        ),
        (("--precision", "fp32", "--quantized-init"), "--quantized-init keeps weights in FP8"),
        (
            ("--backend", "torch", "--tensor-statistics", "2"),
            "--tensor-statistics measures Transformer Engine's layers",
        ),
        (("--init-from", "/nowhere"), "hf download"),
        (("--hidden-size", "30"), "hidden-size is 30, not an even multiple of heads, 4"),
    ],
)
def test_what_cannot_be_is_one_clear_line(
    many_shards: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    if torch.cuda.is_available() and "te" in options:
        pytest.skip("it can be, on this machine")
    with pytest.raises(SystemExit) as stopped:
        train(many_shards, tmp_path / "run", *options)
    assert stopped.value.code in (1, 2)
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not list(tmp_path.rglob("*.distcp"))


def test_padding_inside_sequences_is_refused(
    build_here: Callable[..., Manifest],
    sample: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    build_here(sample, tmp_path / "padded", length_multiple=8)
    with pytest.raises(SystemExit):
        train(tmp_path / "padded", tmp_path / "run")
    assert "attend to padding" in capsys.readouterr().err


def test_another_dataset_is_refused_and_a_moved_one_is_not(
    build_here: Callable[..., Manifest],
    many_shards: Path,
    sample: Path,
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    build_here(sample, tmp_path / "other", capacity=512, max_seq_len=256)
    with pytest.raises(SystemExit):
        train(tmp_path / "other", cut(whole, tmp_path / "run", 8))
    assert "state" in capsys.readouterr().err
    moved = shutil.copytree(many_shards, tmp_path / "moved")
    assert losses(train(moved, cut(whole, tmp_path / "again", 8))) == losses(whole)


def test_validation_is_exact_over_the_split(many_shards: Path, whole: Path) -> None:
    options, tensors = huggingface.load(whole / "export")
    model = build(options, ComputeOptions(backend="torch", precision="fp32"))
    fill(model, tensors, seed=0, topology=single_process(torch.device("cpu")))
    reader = ShardReader(many_shards, split="valid")
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
    found = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()][-1]
    assert len(reader) > 1
    assert (found["kind"], found["step"], found["tokens"]) == ("valid", STEPS, tokens)
    assert found["loss"] == pytest.approx(loss / tokens, rel=1e-6)
    assert found["accuracy"] == pytest.approx(correct / tokens, rel=1e-9)


def test_without_a_gpu_a_cuda_graph_is_left_out_and_the_run_says_so(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train(many_shards, tmp_path / "run", "--cuda-graph", "--warmup-steps", "1", steps=2)
    assert "no CUDA graph, because there is no NVIDIA GPU" in capsys.readouterr().err
    assert set(losses(out)) == {1, 2}


def test_a_profile_is_written(many_shards: Path, tmp_path: Path) -> None:
    out = train(many_shards, tmp_path / "run", "--profile", steps=14)
    assert json.loads((out / "trace.json").read_text())["traceEvents"]
