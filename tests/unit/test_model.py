"""Backend torch against transformers' EsmForMaskedLM, on random weights of every preset's layer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import EsmConfig, EsmForMaskedLM

from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from tests.conftest import REPO, environment
from trainer.config import PRESETS, ComputeOptions
from trainer.huggingface import from_esm, to_esm
from trainer.initialize import build, draw, fill
from trainer.masking import Masker
from trainer.model import Esm2, Sequences, rope_frequencies
from trainer.parallel import alone

CPU = torch.device("cpu")
TORCH = ComputeOptions(backend="torch", precision="fp32")
SMALL = ModelOptions(layers=2, hidden_size=64, heads=4, ffn_size=128)


@pytest.fixture(autouse=True)
def same_numbers() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tests run two at a time
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def shape_of(preset: str) -> ModelOptions:
    """The preset's layer, fewer times."""
    full = PRESETS[preset][1].model
    return ModelOptions(layers=2 if full.hidden_size <= 480 else 1, hidden_size=full.hidden_size, heads=full.heads, ffn_size=full.ffn_size)


def esm(shape: ModelOptions, *, fp16_frequencies: bool = False) -> EsmForMaskedLM:
    """A random EsmForMaskedLM, with weights so large that attention is far from uniform: else nobody would notice a wrong rotation."""
    config = EsmConfig(
        vocab_size=33,
        mask_token_id=32,
        pad_token_id=1,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.ffn_size,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        position_embedding_type="rotary",
        token_dropout=True,
        layer_norm_eps=1e-5,
        emb_layer_norm_before=False,
    )
    with torch.device("meta"):  # its own initialisation takes a minute for the largest layer
        model = EsmForMaskedLM(config).eval()
    model.to_empty(device=CPU)
    model.tie_weights()
    base = torch.empty(1_000_003).uniform_(-1, 1)  # of no row's length a multiple
    with torch.no_grad():
        for parameter in model.parameters():
            bound = (3 / parameter.shape[-1]) ** 0.5 if parameter.ndim > 1 else 0.1
            for piece in parameter.view(-1).split(base.numel()):  # drawing 300 million numbers takes five seconds
                torch.mul(base[: piece.numel()], bound, out=piece)
        for name, parameter in model.named_parameters():
            if "layer_norm" in name.lower() or "layernorm" in name.lower():
                parameter.add_(float(name.endswith("weight")))
            elif ".query.weight" in name:
                parameter.mul_(3.0)
        frequencies = rope_frequencies(shape.head_size)
        model.esm.rotary_embeddings.inv_freq.copy_(frequencies.half().float() if fp16_frequencies else frequencies)
    return model


def ours(shape: ModelOptions, theirs: EsmForMaskedLM) -> Esm2:
    model = build(shape, TORCH)
    fill(model, from_esm(theirs.state_dict(), shape), seed=0, parallel=alone(CPU))
    return model


def sequences(*residues: int) -> list[Tensor]:
    """Tokens of random sequences."""
    return [torch.cat([torch.tensor([ESM2.cls]), torch.randint(4, 24, (n,)), torch.tensor([ESM2.eos])]) for n in residues]


def packed(rows: list[Tensor], *, slots: int = 8, tail: int = 3) -> tuple[Tensor, Sequences]:
    """One THD row with a tail of padding, as a bucket has."""
    ids = torch.cat([*rows, torch.full((tail,), ESM2.pad)])
    ends = np.cumsum([0, *(row.numel() for row in rows), tail])
    cu_seqlens = torch.full((slots + 1,), ids.numel(), dtype=torch.int32)
    cu_seqlens[: ends.size] = torch.from_numpy(ends).int()
    return ids, Sequences(cu_seqlens, 1024)


def padded(rows: list[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=ESM2.pad)


def compare(shape: ModelOptions, theirs: EsmForMaskedLM, rows: list[Tensor], *, gradients: bool, quick: bool = False) -> Esm2:
    """Packed THD against Hugging Face's padded BSHD: logits, loss, gradients."""
    model = ours(shape, theirs)
    hidden = [torch.where((torch.rand(row.shape) < 0.15) & (row > 3), 32, row) for row in rows]
    for inputs in (hidden,) if quick else (rows, hidden):
        labels = [torch.where(masked == row, -100, row) if inputs is hidden else row for row, masked in zip(rows, inputs, strict=True)]
        batch, real = padded(inputs), padded(inputs) != ESM2.pad
        targets = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
        with torch.set_grad_enabled(gradients):
            expected = theirs(input_ids=batch, attention_mask=real.long(), labels=targets)
            ids, where = packed(inputs)
            logits = model(ids, where)
            count = sum(row.numel() for row in rows)
            assert (logits[:count, :33] - expected.logits[real]).abs().max() < 1e-4
            assert bool(torch.isinf(logits[:, 33:]).all())
            index = torch.nonzero(torch.cat(labels) != -100).squeeze(1)
            loss = F.cross_entropy(model(ids, where, index), torch.cat(labels)[index])
            assert (loss - expected.loss).abs() < 1e-5
            flat = model(padded(inputs).flatten(), Sequences.padded(torch.tensor([row.numel() for row in rows]), batch.shape[1]))
            assert (flat[real.flatten(), :33] - expected.logits[real]).abs().max() < 1e-4
        if gradients:
            model.zero_grad()
            theirs.zero_grad()
            loss.backward()
            expected.loss.backward()
            expected_grads = from_esm({name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}, shape)
            for name, parameter in model.named_weights():
                assert parameter.grad is not None
                # a key's bias moves all scores of a query alike: its gradient is zero, but for rounding
                error = torch.dist(parameter.grad, expected_grads[name]) / expected_grads[name].norm()
                assert error < 1e-3, (name, float(error))
    return model


@pytest.mark.long
@pytest.mark.parametrize("preset", PRESETS)
def test_backend_torch_equals_hugging_face(preset: str) -> None:
    shape = shape_of(preset)
    theirs = esm(shape, fp16_frequencies=preset == "esm2-8m")
    small = shape.hidden_size <= 480
    model = compare(shape, theirs, sequences(1, 40, 7, 100) if small else sequences(1, 20), gradients=True, quick=not small)
    if small:
        compare(shape, theirs, sequences(1022, 1), gradients=True, quick=True)
    # the longest, alone; that takes the two largest layers half a minute: THDPACK_LONG=1
    (row,) = sequences(1022 if shape.hidden_size <= 1280 or "THDPACK_LONG" in os.environ else 62)
    with torch.no_grad():
        expected = theirs(input_ids=row[None], attention_mask=torch.ones_like(row)[None]).logits[0]
        assert (model(*packed([row], tail=0))[:, :33] - expected).abs().max() < 1e-4


def test_frequencies_of_a_checkpoint_are_used() -> None:
    theirs = esm(SMALL, fp16_frequencies=True)
    model = ours(SMALL, theirs)
    assert torch.equal(model.inv_freq, theirs.esm.rotary_embeddings.inv_freq)
    (row,) = sequences(1022)
    with torch.no_grad():
        kept = model(*packed([row]))
        model.inv_freq.copy_(draw("inv_freq", model.inv_freq.shape, SMALL, seed=0, device=CPU))
        assert (model(*packed([row])) - kept)[:, :33].abs().max() > 1e-3  # so much does the rounding matter


@pytest.mark.parametrize("key", ["esm.rotary_embeddings.inv_freq", "esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq", "layers"])
def test_frequencies_are_found_under_every_name_they_had(key: str) -> None:
    tensors = dict(esm(SMALL).state_dict())
    frequencies = tensors.pop("esm.rotary_embeddings.inv_freq").half()
    names = [f"esm.encoder.layer.{i}.attention.self.rotary_embeddings.inv_freq" for i in range(2)] if key == "layers" else [key]
    assert torch.equal(from_esm({**tensors, **dict.fromkeys(names, frequencies)}, SMALL)["inv_freq"], frequencies.float())


def test_half_precision_leaves_frequencies_exact() -> None:
    model = ours(SMALL, esm(SMALL))
    before = model.inv_freq.clone()
    model.to(torch.bfloat16)
    assert model.embedding.dtype == torch.bfloat16
    assert torch.equal(model.inv_freq, before)


def test_sequences_of_a_bucket_do_not_see_each_other_bit_for_bit() -> None:
    model = ours(SMALL, esm(SMALL))
    rows = sequences(30, 1, 57, 12)
    masker = Masker(ESM2, seed=3, probability=0.3, epoch_buckets=100, device=CPU)
    others = [*rows[:2], sequences(57)[0], rows[3]]
    with torch.no_grad():
        for mask in (False, True):
            logits = []
            for row in (rows, others):
                ids, where = packed(row)
                ids = masker(ids.to(torch.uint8), torch.tensor([5])).input_ids if mask else ids
                logits.append(model(ids, where))
            begin, end = (sum(row.numel() for row in rows[:n]) for n in (2, 3))
            assert torch.equal(logits[0][:begin], logits[1][:begin])
            assert torch.equal(logits[0][end:], logits[1][end:])
            assert not torch.equal(logits[0][begin:end], logits[1][begin:end])


def test_names_and_shapes_survive_the_way_to_hugging_face_and_back() -> None:
    theirs = esm(SMALL)
    model = ours(SMALL, theirs)
    there = to_esm(dict(model.named_tensors()), SMALL)
    expected = {name: tensor for name, tensor in theirs.state_dict().items() if name != "lm_head.decoder.weight"}  # tied
    assert there.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(there[name], tensor), name


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputing_activations_changes_no_gradient(recompute: str) -> None:
    values = from_esm(esm(SMALL).state_dict(), SMALL)
    ids, where = packed(sequences(30, 1, 57))
    grads = []
    for mode in ("none", recompute):
        model = build(SMALL, ComputeOptions(backend="torch", precision="fp32", recompute=mode))  # type: ignore[arg-type]
        fill(model, values, seed=0, parallel=alone(CPU))
        model(ids, where)[:, :33].logsumexp(1).sum().backward()
        grads.append({name: p.grad for name, p in model.named_weights()})
    for name, grad in grads[0].items():
        assert torch.equal(grad, grads[1][name]), name


def test_initial_values_depend_on_seed_and_name_only() -> None:
    first, again, other = (draw("layers.0.proj.weight", torch.Size([64, 64]), SMALL, seed=seed, device=CPU) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert abs(float(first.std()) - 0.02) < 1e-3
    embedding = draw("embedding", torch.Size([64, 64]), SMALL, seed=1, device=CPU)
    assert not embedding[33:].any()
    assert not embedding[ESM2.pad].any()


def test_presets_have_the_published_sizes() -> None:
    published = {"esm2-8m": 7.5e6, "esm2-35m": 33.5e6, "esm2-150m": 148e6, "esm2-650m": 651e6, "esm2-3b": 2839e6, "esm2-15b": 15.1e9}
    for name, parameters in published.items():
        assert abs(PRESETS[name][1].model.parameters / parameters - 1) < 0.01, name
    model = build(SMALL, TORCH)
    assert SMALL.parameters == sum(p.numel() for p in model.parameters()) - 31 * 64


def test_the_scores_of_long_sequences_are_not_all_kept() -> None:
    """8,192 tokens: 256 MB a head for whoever writes them out, and the same again for their softmax."""
    program = """
import resource, torch
from trainer.context_parallel import Slices
from trainer.layer_torch import Context
from trainer.model import Sequences
torch.set_num_threads(1)
tokens = 8192
context = Context(Sequences(torch.tensor([0, tokens], dtype=torch.int32), tokens), torch.zeros(tokens, 4), Slices())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
context.attend(torch.randn(tokens, 1, 3, 8, requires_grad=True)).sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=REPO, env=environment(), capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100_000  # kB
