"""Sum the gradients of a step over micro-batches and, if each rank holds the whole model, over
ranks.

FSDP2 itself sums the gradients of sharded parameters over ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer.distributed.fsdp import local
from trainer.distributed.row_shards import RowShards, reduce_scatter

_ALIGNMENT: Final = 4
"""Alignment of the sums of each parameter in a buffer: 4 elements are 16 bytes. Kernels can then
read 16 bytes at a time."""


class Gradients:
    """Gradients of a run with a single rank, or of parameters that FSDP2 shards.

    in_place: True if the gradients stay in the parameters' own `grad`, where `backward` sums them.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], *, copies: int = 1) -> None:
        """Args:
        parameters: parameters of the model: all in fp32, or none in fp32 (bf16 or FP8).
        copies: number of ranks that hold the same shard.
        """
        self._copies = copies
        self._parameters = list(parameters)
        self.in_place = all(parameter.dtype.itemsize >= 4 for parameter in parameters)
        self._sums: list[Tensor] = []

    def add(self) -> None:
        """Add the gradients of one micro-batch to those of earlier micro-batches.

        For fp32 gradients this does nothing, because `backward` has added them. bf16 gradients are
        added to fp32 sums, because a sum in bf16 would round small contributions away.
        """
        if self.in_place:
            return
        grads = self._of_micro_batch()
        if not self._sums:
            self._sums = [torch.zeros_like(grad, dtype=torch.float32) for grad in grads]
        torch._foreach_add_(self._sums, grads)
        self._forget()

    def reduce(self) -> None:
        """Sum over ranks, unless FSDP2 does so. Call this once in each step, before `own`."""

    def own(self) -> list[Tensor]:
        """Return the part of the step's gradients that this rank's optimizer applies."""
        return self._sums or self._of_micro_batch()

    def square(self) -> Tensor:
        """Return this rank's share of the sum of squares, float32[]. The sum over all ranks counts
        each gradient once.
        """
        norms = torch.stack(torch._foreach_norm(self.own(), dtype=torch.float32))
        return norms.square().sum() / self._copies

    def clear(self) -> None:
        """Forget the gradients of the step."""
        if self._sums:
            torch._foreach_zero_(self._sums)
        self._forget()

    def _of_micro_batch(self) -> list[Tensor]:
        found = []
        for parameter in self._parameters:
            assert parameter.grad is not None
            found.append(local(parameter.grad))
        return found

    def _forget(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None


class ReplicatedGradients(Gradients):
    """Gradients of parameters that every rank holds whole. All ranks must call `reduce`.

    The sums are fp32 and are stored in two buffers, so that a step has at most two collectives:

    | tensors | collective |
    |---|---|
    | tensors that `shards` divides | reduce-scatter: each rank gets the sums of its rows |
    | other tensors | all-reduce |

    Row r of the first buffer holds, for each divided tensor, the part that rank r updates.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], shards: RowShards, *, micro_batches: int
    ) -> None:
        """Args:
        shards: division of the optimizer's work among ranks.
        micro_batches: number of micro-batches of this rank in a step.
        """
        super().__init__(parameters)
        self.in_place = False
        self._shards = shards
        self._single = micro_batches == 1
        self._divided = [shards.divides(parameter) for parameter in parameters]
        device = parameters[0].device
        sizes = [
            parameter.numel() // (shards.ranks if divided else 1)
            for parameter, divided in zip(parameters, self._divided, strict=True)
        ]
        begins, (scattered, whole) = self._layout(sizes)
        self._scattered = torch.zeros(shards.ranks, scattered, device=device)
        self._whole = torch.zeros(whole, device=device)
        self._own: list[Tensor] = []
        for parameter, divided, begin, size in zip(
            parameters, self._divided, begins, sizes, strict=True
        ):
            end = begin + size
            if divided:
                self._sums.append(self._scattered[:, begin:end])
                row = self._scattered[shards.rank, begin:end]
                self._own.append(row.view(shards.own(parameter).shape))
            else:
                self._sums.append(self._whole[begin:end].view(parameter.shape))
                self._own.append(self._sums[-1])

    def _layout(self, sizes: list[int]) -> tuple[list[int], tuple[int, int]]:
        """Return the offset of each tensor's sums in its buffer. Also return the lengths of the
        buffer for divided tensors and of the buffer for whole tensors.
        """
        ends, begins = [0, 0], []
        for size, divided in zip(sizes, self._divided, strict=True):
            begins.append(ends[not divided])
            ends[not divided] += -(-size // _ALIGNMENT) * _ALIGNMENT
        return begins, (ends[0], ends[1])

    def add(self) -> None:
        """Add the gradients of one micro-batch to the sums."""
        grads = [
            grad.reshape(self._shards.ranks, -1) if divided else grad
            for grad, divided in zip(self._of_micro_batch(), self._divided, strict=True)
        ]
        if self._single:
            torch._foreach_copy_(self._sums, grads)
        else:
            torch._foreach_add_(self._sums, grads)
        self._forget()

    def reduce(self) -> None:
        """Sum over ranks."""
        if self._whole.numel():
            dist.all_reduce(self._whole)
        if self._scattered.numel():
            # With NCCL, the output may be a part of the input. gloo needs a copy of the input.
            source = self._scattered if self._scattered.is_cuda else self._scattered.clone()
            reduce_scatter(self._scattered[self._shards.rank], source.view(-1))

    def own(self) -> list[Tensor]:
        return self._own

    def square(self) -> Tensor:
        divided, whole = torch.stack(
            torch._foreach_norm([self._scattered[self._shards.rank], self._whole])
        ).square()
        total: Tensor = divided + whole / self._shards.world_size
        return total

    def clear(self) -> None:
        if not self._single:
            self._scattered.zero_()
            self._whole.zero_()
        self._forget()
