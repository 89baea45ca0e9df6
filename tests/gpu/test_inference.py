"""Packed inference on a GPU, compared with plain torch in fp32."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from schemas.models import ESM2_MODELS
from trainer import precision
from trainer.config import ComputeOptions
from trainer.distributed.topology import single_process
from trainer.inference.packed_model import PackedModel
from trainer.inference.pooling import embedder
from trainer.inference.rows import PackedRow, RowShape, packed_row
from trainer.inference.windows import Window
from trainer.model.esm2 import Esm2
from trainer.model.initialize import build, fill


def to_fp8(model: Esm2) -> None:
    from trainer.model.layer_fp8 import to_fp8 as convert  # needs Transformer Engine

    convert(model)


GPU = torch.device("cuda")
SHAPE = RowShape(tokens=8192, longest=1024)
LAYERS = (0, 3, 6)


def rows(count: int) -> list[PackedRow]:
    """Return rows of random sequences. The rows hold different numbers of windows."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(count):
        lengths = rng.integers(1, 600, 10 + number)
        found.append(
            packed_row(
                [
                    Window(
                        tokens=np.concatenate(([0], rng.integers(4, 24, n), [2])).astype(np.uint8),
                        record=index,
                        start=0,
                        own_begin=0,
                        own_end=int(n),
                    )
                    for index, n in enumerate(lengths)
                ],
                SHAPE,
            )
        )
    return found


def embedded(
    compute: ComputeOptions, given: list[PackedRow], *, fp8: bool = False
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
    function = embedder(LAYERS, ["mean", "cls", "residues"], torch.float32)
    packed = PackedModel(model.eval(), compute, topology, function)
    found = []
    for row in given:
        count = len(row.windows)
        results = packed.launch(row).wait()
        found.append(
            {
                name: (
                    tensor[: row.bucket.num_tokens] if "residues" in name else tensor[:count]
                ).clone()
                for name, tensor in results.items()
            }
        )
    return found


@pytest.mark.parametrize(("numbers", "limit"), [("fp32", 5e-3), ("bf16", 2e-2), ("fp8", 0.12)])
def test_embeddings_of_te_are_those_of_torch_in_fp32(numbers: str, limit: float) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    given = rows(7)  # later rows replay a CUDA graph
    exact = embedded(ComputeOptions(backend="torch", precision="fp32"), given)
    precision_ = "bf16" if numbers == "fp8" else numbers
    compute = ComputeOptions(backend="te", precision=precision_)
    found = embedded(compute, given, fp8=numbers == "fp8")
    for number, (ours, theirs) in enumerate(zip(found, exact, strict=True)):
        for name in theirs:
            difference = (ours[name] - theirs[name]).norm() / theirs[name].norm()
            print(numbers, number, name, float(difference))
            assert difference < limit, (number, name)


def test_two_runs_give_the_same_bytes() -> None:
    compute = ComputeOptions(backend="te", precision="bf16")
    first, second = embedded(compute, rows(6)), embedded(compute, rows(6))
    for ours, theirs in zip(first, second, strict=True):
        for name in theirs:
            assert torch.equal(ours[name], theirs[name]), name


@pytest.mark.parametrize("size", [64, 320, 1280, 5120])
def test_fp8_kernels_are_those_of_torch(size: int) -> None:
    torch.manual_seed(size)
    from trainer.kernels.fp8_rows import add_norm_rows, bias_gelu_rows, quantize_rows

    x, update = (torch.randn(333, size, device=GPU, dtype=torch.bfloat16) * 3 for _ in range(2))
    bias, weight, shift = (torch.randn(size, device=GPU, dtype=torch.bfloat16) for _ in range(3))

    def close(found: tuple[Tensor, ...], expected: Tensor) -> None:
        numbers, scales = found
        rows = numbers.float() * scales
        assert torch.isfinite(rows).all()
        largest = expected.abs().amax(1, keepdim=True)
        assert torch.allclose(scales, largest / 448, rtol=1e-2)
        # E4M3 has 3 bits of mantissa: an error of at most 2^-4, and 2^-10 of the smallest normal
        limit = expected.abs() * 2**-4 * 1.05 + largest / 448 * 2**-9
        assert ((rows - expected).abs() <= limit).all()

    close(quantize_rows(x), x.float())
    total, *normal = add_norm_rows(x, update, bias, weight, shift, 1e-5)
    added = x.float() + update.float() + bias.float()
    assert torch.equal(total, added.bfloat16())
    normed = torch.nn.functional.layer_norm(
        total.float(), (size,), weight.float(), shift.float(), 1e-5
    )
    close(tuple(normal), normed)
    close(
        bias_gelu_rows(x, bias, tanh=False),
        torch.nn.functional.gelu(x.float() + bias.float()),
    )
