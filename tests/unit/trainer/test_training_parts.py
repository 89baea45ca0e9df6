"""The trainer's parts by themselves: schedule, optimizer, feed, metrics, import from Hugging Face."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed.run import get_args_parser
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from pipeline.reader import ShardReader, merge
from schemas.errors import InputError
from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from trainer.config import PRESETS, ComputeOptions, OptimizerOptions, TrainOptions, parse
from trainer.distributed.topology import single_process
from trainer.feed import RING, Feed
from trainer.model import huggingface
from trainer.model.esm2 import PADDED_VOCABULARY, Esm2, SequenceLayout
from trainer.model.initialize import build, fill
from trainer.monitoring.flops import model_flops
from trainer.monitoring.run_log import RunLog
from trainer.optimizer import Optimizer
from trainer.schedule import learning_rate

CPU = torch.device("cpu")
SMALL = ModelOptions(layers=2, hidden_size=64, heads=4, ffn_size=128)
ALONE = single_process(CPU)


def model(dtype: torch.dtype = torch.float32) -> tuple[Esm2, dict[str, Tensor]]:
    built = build(SMALL, ComputeOptions(backend="torch", precision="fp32"))
    for parameter in built.parameters():
        parameter.data = parameter.data.to(dtype)
    return built, fill(built, {}, seed=0, topology=ALONE)


# schedule


def test_the_published_schedule() -> None:
    options = PRESETS["esm2-650m"][1].optimizer
    assert learning_rate(2_000, options) == pytest.approx(4e-4)
    assert learning_rate(0, options) == pytest.approx(4e-4 / 2_001)
    assert learning_rate(450_000, options) == pytest.approx(4e-5)
    assert learning_rate(499_999, options) == pytest.approx(4e-5)
    assert learning_rate(226_000, options) == pytest.approx(4e-4 * 0.55)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
def test_schedules_rise_to_the_peak_once_and_fall_to_the_end(schedule: str) -> None:
    options = OptimizerOptions(steps=1_000, warmup_steps=100, schedule=schedule, learning_rate=1.0)  # type: ignore[arg-type]
    rates = [learning_rate(step, options) for step in range(1_000)]
    assert rates[:101] == sorted(rates[:101])
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert max(rates) == 1.0
    assert rates[-1] == pytest.approx(0.1, abs=0.01)
    if schedule == "wsd":
        assert rates[100] == rates[899] == 1.0


# optimizer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_are_adamw_on_normalised_clipped_gradients_and_bad_steps_are_skipped(
    dtype: torch.dtype, numerics: None
) -> None:
    """Against AdamW in float64. Four steps round a parameter four times; an update's own error is a thousandth of it at most."""
    built, masters = model(dtype)
    rate, steps = 1e-3, 4
    start = masters or {name: p.detach() for name, p in built.named_weights()}
    reference = {name: value.double().requires_grad_() for name, value in start.items()}
    matrices, vectors = (
        [t for t in reference.values() if (t.ndim > 1) is matrix] for matrix in (True, False)
    )
    adam = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=rate,
        betas=(0.9, 0.98),
        eps=1e-8,
        foreach=False,
    )
    ours = Optimizer(built, OptimizerOptions(weight_decay=0.1, clip_norm=0.5), masters)
    for step in range(steps):
        halves = {
            name: [torch.randn_like(p) for _ in range(2)] for name, p in built.named_weights()
        }
        for i in range(2):
            for name, parameter in built.named_weights():
                if dtype == torch.float32 and i:
                    parameter.grad += halves[name][i]  # as autograd does
                else:
                    parameter.grad = halves[name][i].clone()
            ours.accumulate()
        for name, value in reference.items():
            value.grad = (halves[name][0].double() + halves[name][1].double()) / 100
        bad = step == 2
        before = {name: p.detach().clone() for name, p in built.named_weights()}
        loss_sum, count = torch.tensor(math.nan if bad else 300.0), torch.tensor(100.0)
        loss, norm = ours.step(
            rate, loss_sum=loss_sum, count=count, gradient_square=ours.gradient_square()
        )
        if bad:
            assert int(ours.bad) == 1
            assert all(torch.equal(before[name], p) for name, p in built.named_weights())
            continue
        expected = torch.nn.utils.clip_grad_norm_(list(reference.values()), 0.5)
        # fp32 sums of 10⁵ squares, added in any order that halves: some roundings of 6e-8
        assert norm == pytest.approx(float(expected), rel=1e-6)
        assert float(loss) == 3.0
        adam.step()
    assert (int(ours.applied), int(ours.bad)) == (3, 0)
    found = dict(ours.named_tensors())
    for name, value in reference.items():
        torch.testing.assert_close(
            found[f"model.{name}"].double(),
            value.detach(),
            rtol=steps * 2**-24,
            atol=steps * rate / 1000,
        )
    for name, parameter in built.named_weights():
        assert torch.equal(parameter, found[f"model.{name}"].to(dtype))


def test_a_gradient_that_is_not_finite_is_skipped_too() -> None:
    built, masters = model()
    ours = Optimizer(built, OptimizerOptions(), masters)
    before = built.embedding.detach().clone()
    for parameter in built.parameters():
        parameter.grad = torch.ones_like(parameter)
    built.embedding.grad[5, 5] = math.inf  # type: ignore[index]
    ours.step(
        1e-3,
        loss_sum=torch.tensor(1.0),
        count=torch.tensor(1.0),
        gradient_square=ours.gradient_square(),
    )
    assert torch.equal(built.embedding, before)
    assert int(ours.bad) == 1


# feed


@pytest.mark.parametrize("buckets", [1, 3])
def test_rows_are_the_reader_s_buckets(many_shards: Path, buckets: int) -> None:
    ranks = {"rank": 1, "world_size": 2, "buckets_per_step": 2 * buckets}
    feed = Feed(ShardReader(many_shards, **ranks), buckets=buckets, stride=2, device=CPU)
    reader = ShardReader(many_shards, **ranks)
    for _ in range(2 * RING):
        row, originals = next(feed), [next(reader) for _ in range(buckets)]
        merged = merge(originals)
        assert np.array_equal(row.input_ids.numpy(), merged.input_ids)
        assert np.array_equal(row.sequences.cu_seqlens.numpy(), merged.cu_seqlens)
        assert row.sequences.max_seqlen == 256
        assert row.positions.tolist() == [bucket.position for bucket in originals]
        lengths = np.concatenate(
            [np.diff(bucket.cu_seqlens[: bucket.num_seqs + 1]) for bucket in originals]
        )
        assert row.counts.tolist() == [lengths.sum(), (lengths.astype(np.int64) ** 2).sum()]
    assert feed.waited > 0


# metrics


def test_model_flops_are_those_that_torch_counts() -> None:
    built, _ = model()
    ids = torch.randint(4, 24, (96,))
    sequences = SequenceLayout(torch.tensor([0, 64, 96], dtype=torch.int32), 64)
    index = torch.arange(0, 96, 6)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        built(ids, sequences, index)
    expected = model_flops(SMALL, tokens=96, squares=64**2 + 32**2, predicted=16)
    assert (
        3 * counter.get_total_flops() == expected
    )  # the backward pass takes twice the forward pass
    assert PADDED_VOCABULARY == 64


@pytest.mark.parametrize("cut", [b'{"kind": "tr', b"3", b"{}", b"\xff", b"[" * 100_000])
def test_metrics_of_steps_after_the_checkpoint_are_dropped_and_a_cut_line_too(
    tmp_path: Path, cut: bytes
) -> None:
    lines = [json.dumps({"kind": "train", "step": step, "loss": 1.0}) for step in (10, 20, 30)]
    (tmp_path / "metrics.jsonl").write_bytes("\n".join(lines).encode() + b"\n" + cut)
    options = replace(TrainOptions(), output=replace(TrainOptions().output, out=str(tmp_path)))
    with RunLog(options, ALONE, step=20):
        pass
    assert [
        json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ] == [10, 20]


def test_a_package_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    options = replace(
        TrainOptions(), output=replace(TrainOptions().output, out=str(tmp_path), wandb_project="p")
    )
    with pytest.raises(ValueError, match="pip install wandb"):
        RunLog(options, ALONE, step=0)


# options


def test_every_option_can_be_given_and_is_kept_in_json() -> None:
    options = parse(
        [
            "esm2-15b",
            "--data",
            "d",
            "--schedule",
            "wsd",
            "--gelu",
            "tanh",
            "--recompute",
            "full",
            "--beta2",
            "0.95",
        ]
    )
    assert options.optimizer.learning_rate == 1.6e-4
    assert options.optimizer.weight_decay == 0.1
    assert options.data.tokens_per_step == 3_145_728
    assert json.loads(options.to_json())["optimizer"]["beta2"] == 0.95
    assert (options.optimizer.schedule, options.model.gelu, options.compute.recompute) == (
        "wsd",
        "tanh",
        "full",
    )


def test_a_dataset_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["esm2-8m"])
    assert left.value.code == 2
    assert "--data DATASET is missing" in capsys.readouterr().err


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
def test_a_warm_up_that_leaves_no_room_for_the_decay_is_refused(schedule: str) -> None:
    with pytest.raises(
        ValueError, match="warmup-steps is 950, too long for a schedule of 1000 steps"
    ):
        OptimizerOptions(steps=1_000, warmup_steps=950, schedule=schedule)  # type: ignore[arg-type]


# Hugging Face


def exported(tmp_path: Path) -> Path:
    built, _ = model()
    huggingface.export(
        tmp_path / "esm",
        {name: tensor.detach() for name, tensor in built.named_tensors()},
        SMALL,
        max_seq_len=256,
    )
    return tmp_path / "esm"


def edit(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: edit(folder, token_dropout=False), "token_dropout False, ESM-2 has True"),
        (
            lambda folder: edit(folder, position_embedding_type="absolute"),
            "position_embedding_type",
        ),
        (lambda folder: edit(folder, num_hidden_layers=3), "not those of an EsmForMaskedLM"),
        (lambda folder: (folder / "model.safetensors").unlink(), "save_pretrained"),
        (lambda folder: (folder / "config.json").write_text("{"), "no readable config.json"),
    ],
)
def test_what_is_no_esm2_is_refused_with_a_remedy(
    tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    folder = exported(tmp_path)
    spoil(folder)
    with pytest.raises(InputError, match=message):
        huggingface.load(folder)


def test_large_exports_come_in_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface, "_SHARD_BYTES", 100_000)
    folder = exported(tmp_path)
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    options, tensors = huggingface.load(folder)
    assert options == SMALL
    assert torch.equal(
        tensors["layers.1.proj.weight"], dict(model()[0].named_tensors())["layers.1.proj.weight"]
    )
    from transformers import EsmForMaskedLM

    assert torch.equal(
        EsmForMaskedLM.from_pretrained(folder).esm.encoder.layer[1].attention.output.dense.weight,
        tensors["layers.1.proj.weight"],
    )


def test_the_pretrained_model_is_esm_and_comes_back_through_the_auto_classes(
    tmp_path: Path,
) -> None:
    from transformers import AutoModelForMaskedLM, EsmForMaskedLM

    from trainer.model.hf_model import ThdpackEsmConfig, ThdpackEsmForMaskedLM

    folder = exported(tmp_path)
    plain, ours = (
        EsmForMaskedLM.from_pretrained(folder).eval(),
        ThdpackEsmForMaskedLM.from_esm(folder, backend="torch"),
    )
    rows = [torch.tensor([ESM2.cls, *range(4, 4 + n), ESM2.eos]) for n in (9, 3)]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=ESM2.pad)
    mask = (ids != ESM2.pad).long()
    labels = ids.masked_fill(mask == 0, -100)
    expected, found = (
        plain(input_ids=ids, attention_mask=mask, labels=labels),
        ours(input_ids=ids, attention_mask=mask, labels=labels),
    )
    rounding = (
        100 * 2**-24 * float(expected.logits[mask.bool()].detach().abs().max())
    )  # 5 roundings were seen; a wrong scale shows at 1e-3
    torch.testing.assert_close(
        found.logits[mask.bool()], expected.logits[mask.bool()], rtol=0, atol=rounding
    )
    torch.testing.assert_close(found.loss, expected.loss)
    cu_seqlens = torch.tensor([0, 11, 16], dtype=torch.int32)
    packed = ours(
        input_ids=torch.cat(rows)[None],
        cu_seq_lens_q=cu_seqlens,
        cu_seq_lens_k=cu_seqlens,
        max_length_q=11,
        max_length_k=11,
    )
    torch.testing.assert_close(packed.logits[0], found.logits[mask.bool()], rtol=0, atol=rounding)
    with pytest.raises(ValueError, match="pad on the right"):
        ours(input_ids=ids.flip(1), attention_mask=mask.flip(1))

    ours.save_pretrained(tmp_path / "mine")
    again = AutoModelForMaskedLM.from_pretrained(tmp_path / "mine")
    assert type(again) is ThdpackEsmForMaskedLM
    assert torch.equal(again(input_ids=ids, attention_mask=mask).logits, found.logits)
    half = AutoModelForMaskedLM.from_pretrained(tmp_path / "mine", dtype=torch.bfloat16)
    assert half.model.embedding.dtype == torch.bfloat16
    assert torch.equal(half.model.inv_freq, ours.model.inv_freq)
    ours.export_esm(tmp_path / "back")
    assert torch.equal(
        huggingface.load(tmp_path / "back")[1]["embedding"],
        huggingface.load(folder)[1]["embedding"],
    )
    fresh = ThdpackEsmForMaskedLM(
        ThdpackEsmConfig(
            hidden_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            intermediate_size=64,
            backend="torch",
        )
    )
    # the deviation of 4,096 draws is itself off by 0.02 / √8192 = 2.2e-4
    assert abs(float(fresh.model.layers[0].proj.weight.detach().std()) - 0.02) < 6 * 2.2e-4
    assert bool(torch.isfinite(fresh(input_ids=ids).logits[0]).all())


def test_the_pretrained_model_computes_on_the_device_of_its_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the current one: Triton launches there, wherever tensors are."""
    from trainer.model.hf_model import ThdpackEsmConfig, ThdpackEsmForMaskedLM

    built = ThdpackEsmForMaskedLM(
        ThdpackEsmConfig(
            hidden_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            intermediate_size=64,
            backend="torch",
        )
    )
    current: list[torch.Tensor] = []
    seen: list[bool] = []

    @contextmanager
    def device_of(tensor: torch.Tensor) -> Iterator[None]:
        current.append(tensor)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    built.model.register_forward_hook(lambda *_: seen.append(bool(current) and current[0] is ids))
    ids = torch.full((1, 5), 4)
    built(input_ids=ids)
    assert seen == [True]


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
    assert parsed.training_script == "trainer.train"
    parse([word.replace("$STEPS", "5000") for word in parsed.training_script_args])


@pytest.mark.parametrize(
    ("status", "progress", "requeued"), [(0, True, False), (1, True, True), (1, False, False)]
)
def test_the_slurm_script_requeues_a_job_that_came_further_and_no_other(
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
