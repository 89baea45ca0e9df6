"""Scores of packed rows on a GPU, compared with plain torch in fp32."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from schemas.models import ESM2_MODELS
from tests.gpu.test_inference import GPU, SHAPE, rows, to_fp8
from trainer import precision
from trainer.config import ComputeOptions
from trainer.distributed.topology import single_process
from trainer.inference.packed_model import PackedModel
from trainer.inference.rows import PackedRow, packed_row
from trainer.inference.windows import one_residue_each
from trainer.model.initialize import build, fill
from trainer.scores.likelihood import likelihood


def masked_rows(count: int) -> list[PackedRow]:
    """Return rows of windows that own one residue each. The last row has a few windows only."""
    copies = [
        copy for row in rows(count) for copy in one_residue_each(row.windows[:2], piece=0, pieces=1)
    ]
    found, first = [], 0
    for number in range(count):
        size = 7 if number == count - 1 else 7 + number
        held = copies[first : first + size]
        first += size
        assert sum(window.tokens.size for window in held) <= SHAPE.tokens
        found.append(packed_row(held, SHAPE))
    return found


def scored(
    compute: ComputeOptions, given: list[PackedRow], *, masked: bool, fp8: bool = False
) -> list[Mapping[str, Tensor]]:
    """Return the results of rows for a model with random weights, on the host."""
    topology = single_process(GPU)
    model = build(ESM2_MODELS["esm2-8m"], compute)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(precision.stored_dtype(compute))
        parameter.requires_grad_(False)
    fill(model, {}, seed=0, topology=topology)
    if fp8:
        to_fp8(model)
    packed = PackedModel(model.eval(), compute, topology, likelihood(masked=masked))
    return [
        {name: tensor[: len(row.windows)].clone() for name, tensor in results.items()}
        for row in given
        for results in [packed.launch(row).wait()]
    ]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("numbers", "limit"), [("fp32", 1e-3), ("bf16", 1e-2), ("fp8", 5e-2)])
def test_scores_of_te_are_those_of_torch_in_fp32(numbers: str, limit: float, masked: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    given = masked_rows(7) if masked else rows(7)  # later rows replay a CUDA graph
    exact = scored(ComputeOptions(backend="torch", precision="fp32"), given, masked=masked)
    compute = ComputeOptions(backend="te", precision="bf16" if numbers == "fp8" else numbers)  # type: ignore[arg-type]
    found = scored(compute, given, masked=masked, fp8=numbers == "fp8")
    again = scored(compute, given, masked=masked, fp8=numbers == "fp8")
    for ours, same, theirs in zip(found, again, exact, strict=True):
        for name in theirs:
            assert torch.equal(ours[name], same[name]), name
            error = ((ours[name] - theirs[name]) / theirs[name]).abs().max()
            print(numbers, masked, name, float(error))
            assert np.isfinite(float(error))
            assert error < limit, name
