"""Gradients of a step: their sums over micro-batches and, if each rank holds the whole model, over
ranks.

FSDP2 sums the gradients of sharded parameters over ranks by itself. For whole models, the sum over
ranks begins during the last backward pass of a step: the parameters are divided into chunks, and a
chunk is reduced as soon as all its gradients are computed.

Source of the overlap: PyTorch Distributed (Li et al., VLDB 2020), which calls a chunk a bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer.distributed.fsdp import local
from trainer.distributed.row_shards import RowShards, reduce_scatter

_ALIGNMENT: Final = 4
"""Sums begin at multiples of this number of elements: 16 bytes, so that kernels read 16 bytes at a
time."""
_CHUNK: Final = 1 << 23
"""Smallest number of elements of a chunk, except the last one: 32 MB in fp32. Smaller chunks would
use less of the bandwidth. With larger chunks, the last collective would end later."""


class Gradients:
    """Gradients of parameters that belong to this rank only, or that FSDP2 shards.

    in_place: True if the gradients stay in the parameters' own `grad`, where `backward` sums them.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], *, copies: int = 1) -> None:
        """Args:
        parameters: all fp32, or all bf16 or FP8.
        copies: number of ranks that hold the same shard.
        """
        self._copies = copies
        self._parameters = list(parameters)
        self.in_place = all(parameter.dtype.itemsize >= 4 for parameter in parameters)
        self._sums: list[Tensor] = []

    def add(self) -> None:
        """Add the gradients of one micro-batch to those of earlier micro-batches.

        For fp32 gradients nothing needs doing: `backward` adds to them. bf16 gradients are added to
        fp32 sums, because a sum in bf16 would round small contributions away.
        """
        if self.in_place:
            return
        grads = self._of_micro_batch()
        if not self._sums:
            self._sums = [torch.zeros_like(grad, dtype=torch.float32) for grad in grads]
        torch._foreach_add_(self._sums, grads)
        self._forget()

    def own(self) -> list[Tensor]:
        """Return the gradients of the step that this rank's optimizer applies."""
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
    """Gradients of parameters that every rank holds whole."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], shards: RowShards, *, micro_batches: int
    ) -> None:
        """Args:
        parameters: in the order in which the forward pass uses them.
        shards: division of the optimizer's work among ranks.
        micro_batches: number of micro-batches of this rank in a step.
        """
        super().__init__(parameters)
        self.in_place = False
        self._world_size = shards.world_size
        self._chunks = [
            _Chunk(chunk, shards, single=micro_batches == 1) for chunk in _chunks(parameters)
        ]
        self._begun = 0
        self._reduces = False
        for chunk in self._chunks:
            for parameter in chunk.parameters:
                parameter.register_post_accumulate_grad_hook(partial(self._computed, chunk))

    def _computed(self, chunk: _Chunk, _: Tensor) -> None:
        """Note that autograd has computed a gradient of the chunk. Begin to reduce the chunks that
        are complete, in an order that is the same on all ranks, as collectives require.
        """
        if not self._reduces:
            return
        chunk.missing -= 1
        while self._begun < len(self._chunks) and not self._chunks[self._begun].missing:
            self._chunks[self._begun].add()
            self._chunks[self._begun].begin()
            self._begun += 1

    @contextmanager
    def reduced(self) -> Iterator[None]:
        """Sum the gradients over micro-batches and ranks, while the last backward pass of a step
        runs in this context. All ranks must enter the context.
        """
        for chunk in self._chunks:
            chunk.missing = len(chunk.parameters)
        self._begun, self._reduces = 0, True
        yield
        self._reduces = False
        assert self._begun == len(self._chunks), "the backward pass has left out a parameter"
        for chunk in self._chunks:
            chunk.end()

    def add(self) -> None:
        for chunk in self._chunks:
            chunk.add()

    def own(self) -> list[Tensor]:
        own = {id(p): o for chunk in self._chunks for p, o in chunk.own()}
        return [own[id(parameter)] for parameter in self._parameters]

    def square(self) -> Tensor:
        divided = [chunk.own_rows for chunk in self._chunks if chunk.own_rows.numel()]
        whole = [chunk.whole for chunk in self._chunks if chunk.whole.numel()]
        squares = torch.stack(torch._foreach_norm([*divided, *whole])).square()
        total: Tensor = (
            squares[: len(divided)].sum() + squares[len(divided) :].sum() / self._world_size
        )
        return total

    def clear(self) -> None:
        for chunk in self._chunks:
            chunk.clear()


def _chunks(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Divide parameters into chunks, in the order in which a backward pass computes gradients."""
    chunk: list[nn.Parameter] = []
    for parameter in reversed(parameters):
        chunk.append(parameter)
        if sum(p.numel() for p in chunk) >= _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class _Chunk:
    """Some parameters, and the fp32 sums of their gradients over micro-batches.

    | sums | of the gradients of | collective |
    |---|---|---|
    | `_scattered` | tensors that `shards` divides | reduce-scatter: each rank gets its rows' sums |
    | `whole` | other tensors | all-reduce |

    `_scattered` has one row per rank, which holds the rows of all tensors of that rank.

    missing: number of gradients that the running backward pass has not computed yet.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], shards: RowShards, *, single: bool
    ) -> None:
        self.parameters = list(parameters)
        self.missing = 0
        self._shards, self._single = shards, single
        self._divided = [shards.divides(parameter) for parameter in parameters]
        self._running: list[tuple[Any, Tensor]] = []
        device = parameters[0].device
        sizes = [
            parameter.numel() // (shards.ranks if divided else 1)
            for parameter, divided in zip(parameters, self._divided, strict=True)
        ]
        begins, (scattered, whole) = self._layout(sizes)
        self._scattered = torch.zeros(shards.ranks, scattered, device=device)
        self.own_rows = self._scattered[shards.rank]
        self.whole = torch.zeros(whole, device=device)
        self._sums: list[Tensor] = []
        self._own: list[Tensor] = []
        for parameter, divided, begin, size in zip(
            parameters, self._divided, begins, sizes, strict=True
        ):
            end = begin + size
            if divided:
                self._sums.append(self._scattered[:, begin:end])
                self._own.append(self.own_rows[begin:end].view(shards.own(parameter).shape))
            else:
                self._sums.append(self.whole[begin:end].view(parameter.shape))
                self._own.append(self._sums[-1])

    def _layout(self, sizes: list[int]) -> tuple[list[int], tuple[int, int]]:
        """Return where each tensor's sums begin in their buffer, and the lengths of both buffers
        (divided, whole).
        """
        ends, begins = [0, 0], []
        for size, divided in zip(sizes, self._divided, strict=True):
            begins.append(ends[not divided])
            ends[not divided] += -(-size // _ALIGNMENT) * _ALIGNMENT
        return begins, (ends[0], ends[1])

    def own(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Yield each parameter and the sums that this rank's optimizer applies."""
        return zip(self.parameters, self._own, strict=True)

    @torch.no_grad()
    def add(self) -> None:
        """Add the gradients of one micro-batch to the sums."""
        grads = []
        for parameter, divided in zip(self.parameters, self._divided, strict=True):
            assert parameter.grad is not None
            grad = local(parameter.grad)
            grads.append(grad.reshape(self._shards.ranks, -1) if divided else grad)
            parameter.grad = None
        if self._single:
            torch._foreach_copy_(self._sums, grads)
        else:
            torch._foreach_add_(self._sums, grads)

    def begin(self) -> None:
        """Launch the collectives. The device runs them beside later kernels."""
        if self.whole.numel():
            self._running.append((dist.all_reduce(self.whole, async_op=True), self.whole))
        if self._scattered.numel():
            # NCCL can write into its input, gloo cannot
            source = self._scattered if self._scattered.is_cuda else self._scattered.clone()
            work = reduce_scatter(self.own_rows, source.view(-1), async_op=True)
            self._running.append((work, source))

    def end(self) -> None:
        """Wait for the collectives: on a GPU only the stream waits, not the host."""
        for work, _ in self._running:
            work.wait()
        self._running.clear()

    def clear(self) -> None:
        """Set the sums to zero, unless the next micro-batch overwrites them."""
        if not self._single:
            self._scattered.zero_()
            self.whole.zero_()
