"""Models with random weights, run forwards and backwards on the GPU.

Their input is one random THD row: the sequences are concatenated without padding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from trainer import precision
from trainer.config import ComputeOptions
from trainer.distributed.topology import single_process
from trainer.model.esm2 import Esm2, SequenceLayout
from trainer.model.initialize import build, draw, fill

GPU = torch.device("cuda")
SHAPES = {
    "8m": ModelOptions(layers=2, hidden_size=320, heads=20, ffn_size=1280),
    "35m": ModelOptions(layers=2, hidden_size=480, heads=20, ffn_size=1920),
    "650m": ModelOptions(layers=2, hidden_size=1280, heads=20, ffn_size=5120),
    "15b": ModelOptions(layers=1, hidden_size=5120, heads=40, ffn_size=20480),
}
LENGTHS = (3, 1022, 57, 200, 16, 750)


def model(
    shape: ModelOptions,
    backend: str,
    numbers: str,
    seed: int = 1,
    scale: float = 3.0,
    **changes: Any,
) -> tuple[Esm2, ComputeOptions, dict[str, Tensor]]:
    """Return a randomly initialized model, its compute options and its master weights.

    The weights are larger than usual, to make errors visible.
    """
    compute = ComputeOptions(backend=backend, precision=numbers, **changes)  # type: ignore[arg-type]
    built = build(shape, compute)
    for parameter in built.parameters():
        parameter.data = parameter.data.to(precision.stored_dtype(compute))
    values = {}
    for name, tensor in built.named_tensors():
        value = draw(name, tensor.shape, shape, seed=seed, device=torch.device("cpu"))
        values[name] = (
            value
            if name == "inv_freq"
            else value * scale
            if tensor.ndim > 1
            else value + 0.02 * torch.sin(torch.arange(value.numel()))
        )
    return built, compute, fill(built, values, seed=seed, topology=single_process(GPU))


def row(seed: int) -> tuple[Tensor, SequenceLayout, Tensor]:
    """Return masked tokens, the layout of their sequences in 32 slots, and labels."""
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
    return ids.to(GPU), SequenceLayout(slots.to(GPU), 1024), labels.to(GPU)


def run(
    built: Esm2, compute: ComputeOptions, inputs: tuple[Tensor, SequenceLayout, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    ids, sequences, labels = inputs
    with precision.autocast(compute, GPU, sharded=False):
        logits = built(ids, sequences)
    F.cross_entropy(logits, labels, reduction="sum").backward()
    return logits.detach()[:, :33].float(), {
        name: t.grad.float()
        for name, t in built.named_tensors()
        if getattr(t, "grad", None) is not None
    }


def error(found: Tensor, expected: Tensor) -> float:
    assert torch.isfinite(found).all()
    return float((found - expected).norm() / expected.norm())
