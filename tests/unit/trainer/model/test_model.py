"""ESM-2 in plain torch: rotary frequencies, names, initial values, recomputation, memory."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from schemas.vocabulary import ESM2
from tests.helpers.models import CPU, SMALL, TORCH, esm, ours, packed, sequences
from trainer.config import PRESETS, ComputeOptions
from trainer.distributed.context_parallel import Slices
from trainer.distributed.topology import single_process
from trainer.masking import Masker
from trainer.model.esm2 import SequenceLayout
from trainer.model.esm_tensors import from_esm, to_esm
from trainer.model.initialize import build, draw, fill
from trainer.model.layer_torch import Context

pytestmark = pytest.mark.usefixtures("numerics")


def test_rotary_frequencies_of_a_checkpoint_are_used() -> None:
    theirs = esm(SMALL, fp16_frequencies=True)
    model = ours(SMALL, theirs)
    assert torch.equal(model.inv_freq, theirs.esm.rotary_embeddings.inv_freq)
    (row,) = sequences(1022)
    with torch.no_grad():
        kept = model(*packed([row]))
        model.inv_freq.copy_(draw("inv_freq", model.inv_freq.shape, SMALL, seed=0, device=CPU))
        # frequencies that are not rounded to fp16 change the logits
        assert (model(*packed([row])) - kept)[:, :33].abs().max() > 1e-3


@pytest.mark.parametrize(
    "key",
    [
        "esm.rotary_embeddings.inv_freq",
        "esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq",
        "layers",
    ],
)
def test_rotary_frequencies_are_found_under_all_their_names(key: str) -> None:
    tensors = dict(esm(SMALL).state_dict())
    frequencies = tensors.pop("esm.rotary_embeddings.inv_freq").half()
    names = (
        [f"esm.encoder.layer.{i}.attention.self.rotary_embeddings.inv_freq" for i in range(2)]
        if key == "layers"
        else [key]
    )
    assert torch.equal(
        from_esm({**tensors, **dict.fromkeys(names, frequencies)}, SMALL)["inv_freq"],
        frequencies.float(),
    )


def test_converting_a_model_to_bf16_does_not_change_its_rotary_frequencies() -> None:
    model = ours(SMALL, esm(SMALL))
    before = model.inv_freq.clone()
    model.to(torch.bfloat16)
    assert model.embedding.dtype == torch.bfloat16
    assert torch.equal(model.inv_freq, before)


def test_a_sequence_does_not_change_any_bit_of_its_neighbours_results() -> None:
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


def test_exported_tensors_equal_those_of_the_imported_model() -> None:
    theirs = esm(SMALL)
    model = ours(SMALL, theirs)
    there = to_esm(dict(model.named_tensors()), SMALL)
    expected = {
        name: tensor
        for name, tensor in theirs.state_dict().items()
        if name != "lm_head.decoder.weight"
    }  # without the decoder's weight, which is tied to the embedding
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
        fill(model, values, seed=0, topology=single_process(CPU))
        model(ids, where)[:, :33].logsumexp(1).sum().backward()
        grads.append({name: p.grad for name, p in model.named_weights()})
    for name, grad in grads[0].items():
        assert torch.equal(grad, grads[1][name]), name


def test_initial_values_depend_only_on_seed_and_name() -> None:
    first, again, other = (
        draw("layers.0.proj.weight", torch.Size([64, 64]), SMALL, seed=seed, device=CPU)
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    # the standard deviation of 4,096 draws has a standard error of 0.02 / √8192 = 2.2e-4
    assert abs(float(first.std()) - 0.02) < 6 * 2.2e-4
    embedding = draw("embedding", torch.Size([64, 64]), SMALL, seed=1, device=CPU)
    assert not embedding[33:].any()
    assert not embedding[ESM2.pad].any()


def test_presets_have_the_published_numbers_of_parameters() -> None:
    published = {
        "esm2-8m": 7.5e6,
        "esm2-35m": 33.5e6,
        "esm2-150m": 148e6,
        "esm2-650m": 651e6,
        "esm2-3b": 2839e6,
        "esm2-15b": 15.1e9,
    }
    for name, parameters in published.items():
        assert abs(PRESETS[name][1].model.parameters / parameters - 1) < 0.01, name
    model = build(SMALL, TORCH)
    assert SMALL.parameters == sum(p.numel() for p in model.parameters()) - 31 * 64


def test_attention_scores_of_long_sequences_are_never_all_in_memory() -> None:
    """Scores of 4,096 tokens take 64 MiB per head. Every allocation is below half of that."""
    tokens = 4096
    sequences = SequenceLayout(torch.tensor([0, tokens], dtype=torch.int32), tokens)
    context = Context(sequences, torch.zeros(tokens, 4), Slices())
    qkv = torch.randn(tokens, 1, 3, 8, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        context.attend(qkv).sum().backward()
    results = profiled.profiler.kineto_results  # type: ignore[union-attr] (set by profiling)
    allocated = [event.nbytes() for event in results.events() if event.name() == "[memory]"]
    assert max(allocated) >= 4 * tokens * 8, "the profiler missed the output"
    assert max(allocated) < 4 * tokens**2 / 2
