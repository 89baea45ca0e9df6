"""Comparison of our kernels with plain torch in fp32 on random inputs.

New memory is filled with NaN, so that the tests find values that a kernel fails to write.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

GPU = torch.device("cuda")
SEED = int(torch.randint(1 << 30, ()))


@pytest.fixture(autouse=True)
def _poisoned_memory() -> Iterator[None]:
    """Fill torch.empty with NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    print("seed", SEED)
    torch.manual_seed(SEED)
    yield
    torch.use_deterministic_algorithms(False)


def numbers(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, device=GPU, dtype=dtype)


def compared(ours: list[Tensor], theirs: list[Tensor], limit: float) -> None:
    for found, expected in zip(ours, theirs, strict=True):
        assert torch.isfinite(found).all()
        error = float((found.float() - expected.float()).norm() / expected.float().norm())
        print("error", error)
        assert error < limit


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Return rotated Q and K [T, H, 2, R] by the plain formula."""
    cos, sin = angles.cos()[:, None, None], angles.sin()[:, None, None]
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


# Presets have 20 heads of size 16, 24, 32 or 64, or 40 heads of size 64 or 128.
# The sizes 6, 10, 26, 62 and 126 have odd halves: 3, 5, 13, 31 and 63.
@pytest.mark.parametrize(
    ("heads", "size"),
    [
        (3, 16),
        (3, 24),
        (3, 32),
        (3, 64),
        (20, 16),
        (20, 24),
        (20, 64),
        (40, 64),
        (3, 6),
        (20, 10),
        (3, 26),
        (40, 62),
        (3, 128),
        (40, 128),
        (20, 126),
    ],
)
@pytest.mark.parametrize(
    "lengths", [[1024] * 4, [1, 3, 64, 65, 127, 128, 1022, 200, 31, 33], [2048, 2, 700]]
)
def test_attention_matches_plain_torch_in_fp32(heads: int, size: int, lengths: list[int]) -> None:
    from trainer.kernels.attention import Attention, tiles

    tokens = sum(lengths)
    cu_seqlens = torch.full((33,), tokens, dtype=torch.int32, device=GPU)
    cu_seqlens[: len(lengths) + 1] = torch.tensor([0, *lengths], device=GPU).cumsum(0)
    qkv, grad, angles = (
        numbers(tokens, heads, 3, size),
        numbers(tokens, heads, size),
        torch.rand(tokens, size // 2, device=GPU) * 6,
    )
    ours, theirs = qkv.clone().requires_grad_(), qkv.float().requires_grad_()
    runs = []
    for _ in range(2):
        ours.grad = None
        out = Attention.apply(ours * 1, angles.cos(), angles.sin(), tiles(cu_seqlens, tokens))
        out.backward(grad)
        runs.append([out.detach(), ours.grad])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))  # deterministic
    parts = [
        tensor.split(lengths)
        for tensor in (*rotated(theirs[:, :, :2], angles).unbind(2), theirs[:, :, 2])
    ]
    each = [
        F.scaled_dot_product_attention(*(tensor.transpose(0, 1) for tensor in one)).transpose(0, 1)
        for one in zip(*parts, strict=True)
    ]
    expected = torch.cat(each)
    expected.backward(grad.float())
    assert theirs.grad is not None
    compared(runs[0], [expected.detach(), theirs.grad], 1e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("heads", "size"), [(3, 16), (20, 24), (40, 64), (40, 128), (3, 6), (20, 26)]
)
@pytest.mark.parametrize("together", [True, False])
def test_rotary_embedding_matches_plain_torch_in_fp32(
    dtype: torch.dtype, heads: int, size: int, together: bool
) -> None:
    """Compare results and gradients.

    Args:
        together: pass the three gradients as views of one tensor, as attention returns them.
    """
    from trainer.kernels.rope import RotateQKV

    tokens = 1031
    qkv, angles, grad = (
        numbers(tokens, heads, 3, size, dtype=dtype),
        torch.rand(tokens, size // 2, device=GPU) * 6,
        numbers(tokens, heads, 3, size, dtype=dtype),
    )
    ours, theirs = qkv.clone().requires_grad_(), qkv.float().requires_grad_()
    found = RotateQKV.apply(ours * 1, angles.cos(), angles.sin())
    given = grad.clone().unbind(2)  # a copy, because the backward pass rotates in place
    torch.autograd.backward(found, given if together else [part.contiguous() for part in given])
    expected = (*rotated(theirs[:, :, :2], angles).unbind(2), theirs[:, :, 2])
    torch.autograd.backward(expected, grad.float().unbind(2))
    assert ours.grad is not None
    assert theirs.grad is not None
    compared(
        [*(part.detach() for part in found), ours.grad],
        [*(part.detach() for part in expected), theirs.grad],
        1e-2 if dtype == torch.bfloat16 else 1e-5,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [64, 320, 480, 1280, 5120])
@pytest.mark.parametrize("has_bias", [True, False])
def test_add_and_norm_matches_plain_torch_in_fp32(
    dtype: torch.dtype, size: int, has_bias: bool
) -> None:
    from trainer.kernels.norm import AddNorm

    tokens = 1031
    values = [
        numbers(tokens, size, dtype=dtype),
        numbers(tokens, size, dtype=dtype),
        *(numbers(size, dtype=dtype) for _ in range(3)),
    ]
    grads = [numbers(tokens, size, dtype=dtype) for _ in range(2)]
    ours = [value.clone().requires_grad_() for value in values]
    theirs = [value.float().requires_grad_() for value in values]
    found = AddNorm.apply(ours[0], ours[1], ours[2] if has_bias else None, ours[3], ours[4], 1e-5)
    torch.autograd.backward(found, grads)
    total = theirs[0] + theirs[1] + (theirs[2] if has_bias else 0)
    expected = (total, F.layer_norm(total, (size,), theirs[3], theirs[4], 1e-5))
    torch.autograd.backward(expected, [grad.float() for grad in grads])
    pairs = [(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True) if b.grad is not None]
    compared(
        [*found, *(a for a, _ in pairs)],
        [*expected, *(b for _, b in pairs)],
        1e-2 if dtype == torch.bfloat16 else 1e-5,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [256, 1280, 1920, 10240])
@pytest.mark.parametrize("tanh", [False, True])
def test_bias_and_gelu_matches_plain_torch_in_fp32(
    dtype: torch.dtype, size: int, tanh: bool
) -> None:
    from trainer.kernels.gelu import BiasGelu

    values, grad = (
        [numbers(1031, size, dtype=dtype) * 2, numbers(size, dtype=dtype)],
        numbers(1031, size, dtype=dtype),
    )
    ours = [value.clone().requires_grad_() for value in values]
    theirs = [value.float().requires_grad_() for value in values]
    found = BiasGelu.apply(*ours, tanh)
    found.backward(grad)
    expected = F.gelu(theirs[0] + theirs[1], approximate="tanh" if tanh else "none")
    expected.backward(grad.float())
    compared(
        [found, *(a.grad for a in ours)],
        [expected, *(b.grad for b in theirs)],
        1e-2 if dtype == torch.bfloat16 else 1e-5,
    )
