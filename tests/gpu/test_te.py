"""Backend te against backend torch and against Hugging Face, on fresh random inputs, on a GPU."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.reader import ShardReader
from schemas.vocabulary import ESM2
from trainer import precision
from trainer.config import ComputeOptions, ModelOptions, OptimizerOptions
from trainer.initialize import build, draw, fill
from trainer.masking import Masker
from trainer.model import Esm2, Sequences
from trainer.optimizer import Optimizer
from trainer.parallel import alone
from trainer.train import main

GPU = torch.device("cuda")
SHAPES = {
    "8m": ModelOptions(layers=2, hidden_size=320, heads=20, ffn_size=1280),
    "35m": ModelOptions(layers=2, hidden_size=480, heads=20, ffn_size=1920),
    "650m": ModelOptions(layers=2, hidden_size=1280, heads=20, ffn_size=5120),
    "15b": ModelOptions(layers=1, hidden_size=5120, heads=40, ffn_size=20480),
}
LENGTHS = (3, 1022, 57, 200, 16, 750)


def model(shape: ModelOptions, backend: str, numbers: str, seed: int = 1, scale: float = 3.0) -> tuple[Esm2, ComputeOptions, dict[str, Tensor]]:
    """A model whose random weights are larger than initial ones, so that differences show."""
    compute = ComputeOptions(backend=backend, precision=numbers)  # type: ignore[arg-type]
    built = build(shape, compute)
    for parameter in built.parameters():
        parameter.data = parameter.data.to(precision.stored_dtype(compute))
    values = {}
    for name, tensor in built.named_tensors():
        value = draw(name, tensor.shape, shape, seed=seed, device=torch.device("cpu"))
        values[name] = value if name == "inv_freq" else value * scale if tensor.ndim > 1 else value + 0.02 * torch.sin(torch.arange(value.numel()))
    return built, compute, fill(built, values, seed=seed, parallel=alone(GPU))


def row(seed: int) -> tuple[Tensor, Sequences, Tensor]:
    """Tokens with some masked, their sequences (32 slots, filled up), and labels."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(LENGTHS)
    ids = torch.randint(4, 24, (total,), generator=generator)
    cu = np.concatenate([[0], np.cumsum(LENGTHS)])
    ids[cu[:-1]], ids[cu[1:] - 1] = ESM2.cls, ESM2.eos
    hidden = (torch.rand(total, generator=generator) < 0.15) & (ids > 3)
    labels = torch.where(hidden, ids, -100)
    ids = torch.where(hidden, ESM2.id("<mask>"), ids)
    slots = torch.full((33,), total, dtype=torch.int32)
    slots[: cu.size] = torch.from_numpy(cu.astype(np.int32))
    return ids.to(GPU), Sequences(slots.to(GPU), 1024), labels.to(GPU)


def run(built: Esm2, compute: ComputeOptions, inputs: tuple[Tensor, Sequences, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    ids, sequences, labels = inputs
    with precision.autocast(compute, GPU, sharded=False):
        logits = built(ids, sequences)
    F.cross_entropy(logits, labels, reduction="sum").backward()
    return logits.detach()[:, :33].float(), {name: t.grad.float() for name, t in built.named_tensors() if getattr(t, "grad", None) is not None}


def error(found: Tensor, expected: Tensor) -> float:
    assert torch.isfinite(found).all()
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("gelu", ["erf", "tanh"])
def test_te_in_fp32_equals_torch(shape: str, gelu: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    options = replace(SHAPES[shape], gelu=gelu)
    inputs = row(seed=7)
    expected, expected_grads = run(*model(options, "torch", "fp32")[:2], inputs)
    found, grads = run(*model(options, "te", "fp32")[:2], inputs)
    print(shape, gelu, "logits", error(found, expected), "worst gradient", max(error(grads[name], expected_grads[name]) for name in expected_grads))
    assert grads.keys() == expected_grads.keys()
    assert error(found, expected) < 2e-3  # Transformer Engine's fp32 products run in TF32
    for name, expected_grad in expected_grads.items():
        assert error(grads[name], expected_grad) < 1e-2, name


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("gelu", ["erf", "tanh"])
def test_te_in_bf16_is_as_near_to_fp32_as_torch_in_bf16(shape: str, gelu: str) -> None:
    options = replace(SHAPES[shape], gelu=gelu)
    inputs = row(seed=8)
    exact, exact_grads = run(*model(options, "torch", "fp32")[:2], inputs)
    other, other_grads = run(*model(options, "torch", "bf16")[:2], inputs)
    found, grads = run(*model(options, "te", "bf16")[:2], inputs)
    ours, theirs = error(found, exact), error(other, exact)
    worst = max(grads, key=lambda name: error(grads[name], exact_grads[name]))
    print(
        shape,
        gelu,
        "te",
        ours,
        "torch",
        theirs,
        "worst gradient",
        worst,
        error(grads[worst], exact_grads[worst]),
        error(other_grads[worst], exact_grads[worst]),
    )
    assert ours < 3e-2
    assert ours < 1.5 * theirs  # whose residual stream is fp32; Transformer Engine's is bf16
    for name in exact_grads:
        assert error(grads[name], exact_grads[name]) < max(5e-2, 3 * error(other_grads[name], exact_grads[name])), name


@pytest.mark.parametrize("numbers", ["fp8-delayed", "fp8-current", "fp8-block"])
def test_te_in_fp8_is_within_a_quarter(numbers: str) -> None:
    inputs = row(seed=9)
    exact, exact_grads = run(*model(SHAPES["650m"], "torch", "fp32")[:2], inputs)
    built, compute, _ = model(SHAPES["650m"], "te", numbers)
    for _ in range(3):  # delayed scaling learns its scales
        built.zero_grad()
        found, grads = run(built, compute, inputs)
    print(numbers, error(found, exact), max(error(grads[name], exact_grads[name]) for name in grads))
    # e4m3 rounds to 3.6 % (rms), eight products deep, with weights three times as large as initial ones
    assert error(found, exact) < 0.25


@pytest.mark.parametrize("backend", ["te", "torch"])
def test_padded_rows_equal_packed_ones(backend: str) -> None:
    ids, sequences, _ = row(seed=10)
    built, compute, _ = model(SHAPES["8m"], backend, "bf16")
    cu = sequences.cu_seqlens[: len(LENGTHS) + 1].tolist()
    padded = torch.full((len(LENGTHS), 1024), ESM2.pad, device=GPU)
    for i, (begin, end) in enumerate(zip(cu, cu[1:], strict=False)):
        padded[i, : end - begin] = ids[begin:end]
    with torch.no_grad(), precision.autocast(compute, GPU, sharded=False):
        packed = built(ids, sequences)[:, :33]
        rows = built(padded.flatten(), Sequences.padded(torch.tensor(LENGTHS, device=GPU), 1024))[:, :33]
    assert error(rows[padded.flatten() != ESM2.pad].float(), packed.float()) < 1e-2


@pytest.mark.parametrize("fp16_frequencies", [False, True])
def test_te_equals_hugging_face(fp16_frequencies: bool) -> None:
    transformers = pytest.importorskip("transformers")
    from trainer.huggingface import from_esm

    torch.manual_seed(3)
    shape = SHAPES["650m"]
    config = transformers.EsmConfig(
        vocab_size=33, mask_token_id=32, pad_token_id=1, hidden_size=1280, num_hidden_layers=2, num_attention_heads=20, intermediate_size=5120,
        position_embedding_type="rotary", token_dropout=True, layer_norm_eps=1e-5, emb_layer_norm_before=False,
    )  # fmt: skip
    theirs = transformers.EsmForMaskedLM(config).to(GPU).eval()
    tensors = dict(theirs.state_dict())
    if fp16_frequencies:
        frequencies = theirs.esm.rotary_embeddings.inv_freq
        frequencies.copy_(frequencies.half().float())
        tensors["esm.rotary_embeddings.inv_freq"] = frequencies
    compute = ComputeOptions(backend="te", precision="fp32")
    ours = build(shape, compute)
    fill(ours, from_esm(tensors, shape), seed=0, parallel=alone(GPU))
    ids, sequences, _ = row(seed=11)
    cu = sequences.cu_seqlens.tolist()
    with torch.no_grad():
        found = ours(ids, sequences)[:, :33]
        for begin, end in zip(cu[: len(LENGTHS)], cu[1 : len(LENGTHS) + 1], strict=True):
            one = ids[None, begin:end]
            expected = theirs(input_ids=one, attention_mask=torch.ones_like(one)).logits[0]
            assert error(found[begin:end], expected) < 2e-3


def test_masks_are_the_same_on_the_cpu() -> None:
    tokens = torch.randint(0, 33, (4096,), dtype=torch.uint8)
    positions = torch.tensor([123_456_789, 3])
    there, here = (
        Masker(ESM2, seed=5, probability=0.15, epoch_buckets=1000, device=device)(tokens.to(device), positions.to(device))
        for device in (GPU, torch.device("cpu"))
    )
    for name in ("input_ids", "index", "labels", "overflow"):
        assert torch.equal(getattr(there, name).cpu(), getattr(here, name)), name


@pytest.mark.parametrize("recompute", ["selective", "full"])
@pytest.mark.parametrize("numbers", ["bf16", "fp8-delayed"])
def test_recomputing_changes_nothing(recompute: str, numbers: str) -> None:
    ids, sequences, labels = row(seed=12)
    kept, compute, _ = model(SHAPES["8m"], "te", numbers)
    again, again_compute, _ = model(SHAPES["8m"], "te", numbers)
    for layer in again.layers:
        layer.recompute = recompute
    expected, expected_grads = run(kept, compute, (ids, sequences, labels))
    found, grads = run(again, again_compute, (ids, sequences, labels))
    assert error(found, expected) < 1e-6
    for name in expected_grads:
        assert error(grads[name], expected_grads[name]) < 2e-2, name


def test_masters_step_as_adamw_and_a_bad_step_is_skipped() -> None:
    shape = SHAPES["8m"]
    options = OptimizerOptions(weight_decay=0.1, clip_norm=0.5)
    built, _, masters = model(shape, "te", "bf16")
    reference = {name: value.clone().requires_grad_() for name, value in masters.items()}
    groups = [[t for t in reference.values() if t.ndim > 1], [t for t in reference.values() if t.ndim < 2]]
    adam = torch.optim.AdamW([{"params": groups[0], "weight_decay": 0.1}, {"params": groups[1], "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.98), eps=1e-8)
    ours = Optimizer(built, options, masters)
    count = torch.tensor(100.0, device=GPU, dtype=torch.float64)
    for step in range(4):
        bad, gradients = step == 2, {}
        for name, tensor in built.named_weights():
            halves = [torch.randn_like(tensor) for _ in range(2)]  # of two micro-batches
            reference[name].grad = (halves[0].float() + halves[1].float()) / 100
            gradients[name] = halves
        for i in range(2):
            for name, tensor in built.named_weights():
                tensor.grad = gradients[name][i]
            ours.accumulate()
        square = ours.gradient_square().double()
        _, norm = ours.step(torch.full_like(count, 1e-3), loss_sum=torch.full_like(count, math.nan if bad else 300.0), count=count, gradient_square=square)
        if not bad:
            expected = torch.nn.utils.clip_grad_norm_(list(reference.values()), 0.5)
            assert abs(float(norm / expected) - 1) < 1e-5
            adam.step()
    assert int(ours.applied) == 3
    assert int(ours.bad) == 0
    found = dict(ours.named_tensors())
    for name, value in reference.items():
        assert error(found[f"model.{name}"], value.detach()) < 1e-6, name
    for name, tensor in built.named_weights():
        assert torch.equal(tensor, found[f"model.{name}"].bfloat16()), name


def losses(out: Path, kind: str = "train") -> dict[int, float]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == kind}


def unigram_loss(dataset: Path) -> float:
    """Entropy of the valid split's residues under their own frequencies, in nats: no model that ignores context does better."""
    reader = ShardReader(dataset, split="valid")
    counts = sum(np.bincount(reader[i].input_ids, minlength=33) for i in range(len(reader)))[4:31]
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


@pytest.mark.parametrize("numbers", ["bf16", "fp8-delayed"])
def test_8m_learns_more_than_frequencies_in_300_steps(dataset: Path, tmp_path: Path, numbers: str) -> None:
    run_8m(dataset, tmp_path, numbers, 300)
    found, frequencies = losses(tmp_path / "run", "valid")[300], unigram_loss(dataset)
    print(numbers, "validation", found, "unigram", frequencies, "margin", frequencies - found)
    assert found < frequencies - 0.02


@pytest.mark.parametrize("numbers", ["bf16", "fp8-delayed"])
def test_a_run_goes_on_where_it_stopped(dataset: Path, tmp_path: Path, numbers: str) -> None:
    run_8m(dataset, tmp_path / "whole", numbers, 30)
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    (tmp_path / "again" / "run" / "checkpoints" / "latest").write_text("step-00000015")
    shutil.rmtree(tmp_path / "again" / "run" / "checkpoints" / "step-00000030")
    run_8m(dataset, tmp_path / "again", numbers, 30)
    whole, again = losses(tmp_path / "whole" / "run"), losses(tmp_path / "again" / "run")
    differences = {step: abs(whole[step] - again[step]) for step in whole}
    print(numbers, "differences after resuming", differences)
    assert whole.keys() == again.keys()
    assert differences[16] < 1e-6  # a forward pass gives the same sums each time
    assert max(differences.values()) < 2e-2  # a backward pass of cuDNN adds up in any order, and early training is unstable


@pytest.mark.parametrize("numbers", ["bf16", "fp8-delayed", "fp8-current"])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_captured_step_is_the_same_step(dataset: Path, tmp_path: Path, numbers: str, micro_batches: int) -> None:
    batch = ["--buckets-per-step", "2", "--buckets-per-micro-batch", str(2 // micro_batches)]
    for name, more in {"eager": [], "captured": ["--cuda-graph"], "again": ["--cuda-graph"]}.items():
        run_8m(dataset, tmp_path / name, numbers, 20, *batch, *more)
    eager, captured, again = (losses(tmp_path / name / "run") for name in ("eager", "captured", "again"))
    print(numbers, "largest difference", max(abs(eager[step] - captured[step]) for step in eager), max(abs(again[step] - captured[step]) for step in eager))
    assert eager == captured == again  # bit for bit: no kernel adds up in an order of its own


def run_8m(dataset: Path, folder: Path, numbers: str, steps: int, *more: str) -> None:
    arguments = ["esm2-8m", "--data", str(dataset), "--out", str(folder / "run"), "--precision", numbers, "--warmup-steps", "10"]
    arguments += [] if "--buckets-per-step" in more else ["--buckets-per-step", "4"]
    arguments += ["--learning-rate", "2e-3", "--log-every", "1" if steps < 100 else "20", "--checkpoint-every", "15", "--validate-every", "0"]
    main([*arguments, "--steps", str(steps), *more])
