"""AdamW kernel for fp32 masters, bf16 gradients and bf16 parameters. The kernel updates all tensors
in one launch and one pass over memory. The pass reads and writes 28 bytes per parameter.

Times of the alternatives, for 650 M parameters on an H200:
- torch's fused AdamW: 8.4 ms. Gradients, parameters and moments must have the same dtype for this
  function. Therefore bf16 gradients are first copied to fp32, and masters are later copied to bf16.
- Transformer Engine's FusedAdam with masters and a scale on the device: 8.8 ms.

Source of the arithmetic: torch.optim.AdamW (Loshchilov & Hutter, 2019). The tests compare the
kernel with torch's AdamW.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK: Final = 2048


@triton.jit
def _update(
    g,
    p,
    w,
    m,
    v,
    at,
    inside,
    stored,
    scale,
    step_size,
    root,
    decay,
    beta1: tl.constexpr,
    beta2: tl.constexpr,
    epsilon: tl.constexpr,
):
    """Update one block of a tensor.

    g, p, w, m, v: pointers to gradients, parameters, masters, first and second moments.
    at: offsets of the block's elements.
    inside: mask of the elements within the tensor; None if all elements are within the tensor.
    stored: True to write the parameters.
    """
    grad = tl.load(g + at, mask=inside).to(tl.float32) * scale
    moment = tl.load(m + at, mask=inside)
    moment += (1 - beta1) * (grad - moment)
    square = beta2 * tl.load(v + at, mask=inside) + (1 - beta2) * grad * grad
    weight = tl.load(w + at, mask=inside) * (1 - decay)
    weight -= step_size * moment / (tl.sqrt(square) * root + epsilon)
    tl.store(m + at, moment, mask=inside)
    tl.store(v + at, square, mask=inside)
    tl.store(w + at, weight, mask=inside)
    if stored:
        tl.store(p + at, weight.to(tl.bfloat16), mask=inside)


@triton.jit
def _step(
    grads,
    tensors,
    sizes,
    blocks,
    decays,
    numbers,
    grad_dtype: tl.constexpr,
    aligned: tl.constexpr,
    block: tl.constexpr,
    beta1: tl.constexpr,
    beta2: tl.constexpr,
    epsilon: tl.constexpr,
):
    """Update all n tensors. Each program updates one block of one tensor.

    grads: int64[n], addresses of the gradients.
    tensors: int64[n, 4], addresses of the parameters (0: not written), masters, first and second
        moments.
    sizes: int64[n], number of elements of each tensor.
    blocks: int32[programs, 2], index of the tensor, and index of the block in the tensor.
    decays: float32[n], weight decay of each tensor.
    numbers: float32[5], skip (1 to skip the step, else 0), scale, learning rate,
        learning rate / first bias correction, 1 / √(second bias correction).
    """
    if tl.load(numbers) != 0:
        return
    scale, rate, step_size, root = (
        tl.load(numbers + 1),
        tl.load(numbers + 2),
        tl.load(numbers + 3),
        tl.load(numbers + 4),
    )
    i = tl.load(blocks + 2 * tl.program_id(0))
    start = tl.load(blocks + 2 * tl.program_id(0) + 1).to(tl.int64) * block
    g = tl.load(grads + i).to(tl.pointer_type(grad_dtype))
    stored = tl.load(tensors + 4 * i) != 0
    p = tl.load(tensors + 4 * i).to(tl.pointer_type(tl.bfloat16))
    w = tl.load(tensors + 4 * i + 1).to(tl.pointer_type(tl.float32))
    m = tl.load(tensors + 4 * i + 2).to(tl.pointer_type(tl.float32))
    v = tl.load(tensors + 4 * i + 3).to(tl.pointer_type(tl.float32))
    if aligned:
        g, p, w, m, v = (
            tl.multiple_of(g, 16),
            tl.multiple_of(p, 16),
            tl.multiple_of(w, 16),
            tl.multiple_of(m, 16),
            tl.multiple_of(v, 16),
        )
    size = tl.load(sizes + i)
    decay = rate * tl.load(decays + i)
    at = start + tl.arange(0, block)
    if start + block <= size:
        # Without a mask, a complete block is read and written 16 bytes at a time.
        _update(
            g, p, w, m, v, at, None, stored, scale, step_size, root, decay, beta1, beta2, epsilon
        )
    else:
        _update(
            g,
            p,
            w,
            m,
            v,
            at,
            at < size,
            stored,
            scale,
            step_size,
            root,
            decay,
            beta1,
            beta2,
            epsilon,
        )


class FusedAdamW:
    """AdamW step of bf16 parameters and their masters.

    Parameters, masters and moments must keep their addresses. Gradients may have other addresses in
    each step. The gradients of a step are all bf16 or all fp32.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor | None],
        masters: Sequence[Tensor],
        moments: Sequence[tuple[Tensor, Tensor]],
        *,
        decays: Sequence[float],
        beta1: float,
        beta2: float,
        epsilon: float,
    ) -> None:
        """Args:
        parameters: this rank's shards, bf16. None: the kernel does not write this parameter, and
            the caller computes the parameter from its master.
        masters: this rank's shards, fp32.
        moments: this rank's shards of Adam's first and second moments, fp32.
        decays: weight decay of each parameter.
        All tensors are contiguous and on the same GPU.
        """
        device = masters[0].device
        self._kept = [(p, w, *mv) for p, w, mv in zip(parameters, masters, moments, strict=True)]
        addresses = [
            [0 if tensor is None else tensor.data_ptr() for tensor in four] for four in self._kept
        ]
        sizes = [w.numel() for w in masters]
        self._aligned = all(address % 16 == 0 for four in addresses for address in four)
        self._tensors = torch.tensor(addresses, dtype=torch.int64, device=device)
        self._sizes = torch.tensor(sizes, dtype=torch.int64, device=device)
        self._decays = torch.tensor(list(decays), dtype=torch.float32, device=device)
        programs = [
            (i, block) for i, size in enumerate(sizes) for block in range(-(-size // _BLOCK))
        ]
        self._blocks = torch.tensor(programs, dtype=torch.int32, device=device).reshape(-1, 2)
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon
        self._where: list[int] = []
        self._grads = torch.empty(0, dtype=torch.int64)

    def locate(self, grads: Sequence[Tensor]) -> None:
        """Copy the addresses of the gradients to the device, if the addresses have changed. A
        CUDA graph cannot contain this copy. Therefore call this before the capture. During the
        capture, the addresses must not change.
        """
        where = [grad.data_ptr() for grad in grads]
        if where != self._where:
            self._where = where
            self._grads = (
                torch.tensor(where, dtype=torch.int64)
                .pin_memory()
                .to(self._sizes.device, non_blocking=True)
            )

    def step(
        self, grads: Sequence[Tensor], *, rate: Tensor, scale: Tensor, skip: Tensor, applied: Tensor
    ) -> None:
        """Run one step, unless `skip` is true.

        Args:
            grads: gradients of all parameters. The kernel multiplies them by `scale`.
            rate: learning rate, scalar on the device.
            scale: scalar on the device.
            skip: bool[] on the device.
            applied: int64[] on the device, number of earlier steps that were not skipped.
        """
        self.locate(grads)
        count = applied.double() + 1
        first, second = 1 - self._beta1**count, 1 - self._beta2**count
        numbers = torch.stack(
            [skip.double(), scale.double(), rate.double(), rate / first, second.rsqrt()]
        ).float()
        aligned = self._aligned and all(address % 16 == 0 for address in self._where)
        dtype = tl.bfloat16 if grads[0].dtype == torch.bfloat16 else tl.float32
        _step[(self._blocks.shape[0],)](
            self._grads,
            self._tensors,
            self._sizes,
            self._blocks,
            self._decays,
            numbers,
            dtype,
            aligned,
            _BLOCK,
            self._beta1,
            self._beta2,
            self._epsilon,
        )
