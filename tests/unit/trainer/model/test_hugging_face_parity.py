"""Compare backend torch with transformers' EsmForMaskedLM, for layers of each preset's shape.

Weights are random.

- Results are compared in float64, because both models then agree to the last digits on any CPU.
- Rounding errors are compared in float32. The error is the difference from the float64 result.
  Our error is at most 1.5 times Hugging Face's error.
- Results in float32 are not compared, because their roundings depend on the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from schemas.models import ModelOptions
from tests.helpers.models import esm, ours, packed, padded, sequences
from trainer.config import PRESETS
from trainer.model.esm2 import Esm2, SequenceLayout
from trainer.model.esm_tensors import from_esm

if TYPE_CHECKING:
    from transformers import EsmForMaskedLM

LONG = "THDPACK_LONG" in os.environ
MASK, IGNORED = 32, -100
LOGITS, GRADIENTS = 1e-9, 1e-8
"""Largest difference of logits, and of a gradient relative to its norm, in float64.

Rounding causes differences of about 1e-13: some hundred additions of numbers up to 30, each with a
relative error of 2e-16. A constant that is wrong in float32's last digit causes
a difference of 1e-7.
"""
FP32_ERROR = 1.5
"""Upper limit of a ratio: our rms error in float32, divided by Hugging Face's rms error. The
geometric mean of the ratio over the examples is compared with this limit.

The two models round equally often, so the ratio is about 1. In a single example, the ratio is 0.7
to 1.6: half of the error may come from a single token.
"""


def shape_of(preset: str) -> ModelOptions:
    """Return the preset's shape with one or two layers.

    Without THDPACK_LONG, the three largest presets get a smaller hidden size, but keep their head
    size.
    """
    full = PRESETS[preset][1].model
    hidden, heads, ffn = full.hidden_size, full.heads, full.ffn_size
    if hidden > 640 and not LONG:
        heads = 4
        hidden = heads * full.head_size
        ffn = 4 * hidden
    return ModelOptions(
        layers=2 if hidden <= 640 else 1, hidden_size=hidden, heads=heads, ffn_size=ffn
    )


@dataclass(frozen=True)
class Computed:
    """Results of a model.

    logits: float[tokens, 33], real tokens only.
    loss: float[], mean over labels.
    gradients: gradient of each parameter, by our names. Empty without a backward pass.
    """

    logits: Tensor
    loss: Tensor
    gradients: dict[str, Tensor]


@dataclass(frozen=True)
class Example:
    """Inputs of a model.

    rows: token ids of each sequence, int64[length], some of them masked.
    labels: labels of each sequence, int64[length]. Tokens that are not masked have label IGNORED.
    """

    rows: list[Tensor]
    labels: list[Tensor]

    @staticmethod
    def random(*residues: int) -> Example:
        rows = sequences(*residues)
        rows[0][1] = MASK
        masked = [
            torch.where((torch.rand(row.shape) < 0.15) & (row > 3), MASK, row) for row in rows
        ]
        labels = [torch.where(row == MASK, 5, IGNORED) for row in masked]
        return Example(masked, labels)


def by_hugging_face(
    model: EsmForMaskedLM, example: Example, shape: ModelOptions, *, backward: bool
) -> Computed:
    """Return the results of Hugging Face's model on one padded batch (BSHD)."""
    model.zero_grad()
    batch, real = padded(example.rows), padded(example.rows) != 1
    targets = torch.nn.utils.rnn.pad_sequence(
        example.labels, batch_first=True, padding_value=IGNORED
    )
    with torch.set_grad_enabled(backward):
        found = model(input_ids=batch, attention_mask=real.long(), labels=targets)
    gradients = {}
    if backward:
        found.loss.backward()
        theirs = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        gradients = from_esm(theirs, shape)
        model.zero_grad()  # frees unused gradients; the largest layer has 2.5 GB of gradients
    return Computed(found.logits[real].detach().double(), found.loss.detach().double(), gradients)


def by_us(model: Esm2, example: Example, *, backward: bool) -> Computed:
    """Return the results of our model on one packed row (THD).

    The loss is computed from logits of the labelled tokens only, as in training.
    """
    model.zero_grad()
    ids, where = packed(example.rows)
    labels = torch.cat(example.labels)
    with torch.set_grad_enabled(backward):
        logits = model(ids, where)
        index = torch.nonzero(labels != IGNORED).squeeze(1)
        loss = F.cross_entropy(model(ids, where, index), labels[index])
    assert bool(torch.isinf(logits[:, 33:]).all())
    gradients = {}
    if backward:
        loss.backward()
        gradients = {name: p.grad for name, p in model.named_weights() if p.grad is not None}
        model.zero_grad()
    return Computed(
        logits[: labels.numel(), :33].detach().double(), loss.detach().double(), gradients
    )


def by_us_padded(model: Esm2, example: Example) -> Tensor:
    """Return the logits of our model on padded rows (BSHD)."""
    batch = padded(example.rows)
    lengths = torch.tensor([row.numel() for row in example.rows])
    with torch.no_grad():
        logits = model(batch.flatten(), SequenceLayout.padded(lengths, batch.shape[1]))
    return logits[(batch != 1).flatten(), :33].double()


@contextmanager
def in_float64(*models: torch.nn.Module) -> Iterator[None]:
    """Compute in float64 throughout.

    Both models call `.float()` for rotary embeddings. In this context, `.float()` is `.double()`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "float", Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            for model in models:
                model.double()
            yield
        finally:
            torch.set_default_dtype(torch.float32)
            for model in models:
                model.to(torch.float32)


def error(found: dict[str, Tensor], true: dict[str, Tensor]) -> float:
    """Return the root of the sum of squares of the tensors' relative errors."""
    squares = [
        float(torch.dist(found[name].double(), true[name]) / true[name].norm()) ** 2
        for name in found
    ]
    return float(sum(squares) ** 0.5)


def compare(
    theirs: EsmForMaskedLM, shape: ModelOptions, example: Example, *, backward: bool
) -> dict[str, float]:
    """Compare packed THD with Hugging Face's padded BSHD: logits, loss, gradients.

    Returns:
        Our error in float32 divided by Hugging Face's error, for logits and for gradients.
    """
    model = ours(shape, theirs)
    single = (
        by_hugging_face(theirs, example, shape, backward=backward),
        by_us(model, example, backward=backward),
    )
    with in_float64(theirs, model):
        expected = by_hugging_face(theirs, example, shape, backward=backward)
        found = by_us(model, example, backward=backward)
        found_padded = by_us_padded(model, example)
    assert (found.logits - expected.logits).abs().max() < LOGITS
    assert (found_padded - expected.logits).abs().max() < LOGITS
    assert (found.loss - expected.loss).abs() < LOGITS
    for name, gradient in found.gradients.items():
        assert torch.dist(gradient, expected.gradients[name]) < GRADIENTS * gradient.norm(), name
    theirs_off, ours_off = (float(torch.dist(each.logits, expected.logits)) for each in single)
    ratios = {"logits": ours_off / theirs_off}
    if backward:
        # The joint bias of queries, keys and values is left out. The true gradient of the bias of
        # keys is zero: it adds the same number to all scores of a query, which softmax ignores.
        true = {
            name: g
            for name, g in expected.gradients.items()
            if name in found.gradients and "qkv.bias" not in name
        }
        theirs_off, ours_off = (
            error({name: each.gradients[name] for name in true}, true) for each in single
        )
        ratios["gradients"] = ours_off / theirs_off
    return ratios


@pytest.mark.long
@pytest.mark.parametrize("preset", PRESETS)
def test_backend_torch_gives_the_results_of_hugging_face(preset: str, numerics: None) -> None:
    shape = shape_of(preset)
    small = shape.hidden_size <= 480
    found = []
    few = 2 if shape.hidden_size <= 640 else 1
    for number in range(few if not small else 5 if LONG else 3):
        theirs = esm(shape, fp16_frequencies=preset == "esm2-8m" and number % 2 == 0)
        lengths = (1, 40, 7, 100) if LONG else (1, 30, 7)
        found.append(compare(theirs, shape, Example.random(*lengths), backward=True))
    longest = Example.random(1022, 1)
    if LONG:
        found.append(compare(theirs, shape, longest, backward=small))
    elif preset == "esm2-8m":
        single = replace(shape, layers=1)
        theirs = esm(single, fp16_frequencies=True)
        found.append(compare(theirs, single, longest, backward=False))
    for name in ("logits", "gradients"):
        ratios = [each[name] for each in found if name in each]
        assert geometric_mean(ratios) <= FP32_ERROR, (name, ratios)


def test_a_change_of_query_weights_by_one_part_in_ten_million_is_detected(numerics: None) -> None:
    """Scale weights of the queries by 1 + 1e-7. The comparison in float64 then fails."""
    shape = shape_of("esm2-8m")
    theirs = esm(shape)
    model = ours(shape, theirs)
    example = Example.random(40, 100)
    with in_float64(theirs, model):
        expected = by_hugging_face(theirs, example, shape, backward=False)
        with torch.no_grad():
            model.layers[0].layernorm_qkv.weight.view(shape.heads, 3, -1)[:, 0] *= 1 + 1e-7
        found = by_us(model, example, backward=False)
    assert (found.logits - expected.logits).abs().max() > LOGITS
