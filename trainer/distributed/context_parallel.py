"""Context parallelism: neighbouring ranks share a row. Each holds a slice of its tokens, and attends with a share of its heads to all of them.

Before attention an all-to-all turns slices of all heads into all tokens of some heads, after it another one turns them back (DeepSpeed-Ulysses, Jacobs
et al., 2023). Attention itself sees an ordinary packed row: nothing depends on where sequences begin, and none needs padding. Heads that do not divide
are shared out unevenly. Masks, token dropout and angles come from the whole row, which every rank of the group reads.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def shares(whole: int, ranks: int) -> list[int]:
    """`whole` divided among ranks, as evenly as it goes, the larger ones first."""
    return [whole // ranks + (rank < whole % ranks) for rank in range(ranks)]


class Slices:
    """A row over the ranks of a group. Without arguments: over one, which holds all of it."""

    def __init__(self, *, rank: int = 0, ranks: int = 1, group: Any = None) -> None:
        """rank: of this process in the group. ranks: of the group."""
        self.rank, self.ranks, self._group = rank, ranks, group

    def heads(self, heads: int) -> int:
        """Heads that this rank attends with."""
        return shares(heads, self.ranks)[self.rank]

    def own(self, x_T: Tensor) -> Tensor:
        """This rank's slice of what is there of each token; a view. T is a multiple of the number of ranks."""
        length = x_T.shape[0] // self.ranks
        return x_T.narrow(0, self.rank * length, length)

    def to_heads(self, x_tH: Tensor) -> Tensor:
        """[t, H, …] of this rank's tokens, all heads → [T, h, …] of all tokens, this rank's heads."""
        return x_tH if self.ranks == 1 else _ToHeads.apply(x_tH, self)

    def to_tokens(self, x_Th: Tensor, heads: int) -> Tensor:
        """[T, h, …] of all tokens, this rank's heads → [t, H, …] of this rank's tokens, all heads; H is `heads`."""
        return x_Th if self.ranks == 1 else _ToTokens.apply(x_Th, heads, self)

    def exchange_to_heads(self, x_tH: Tensor) -> Tensor:
        (tokens, heads), rest = x_tH.shape[:2], x_tH.shape[2:]
        each = shares(heads, self.ranks)
        sent = torch.cat([part.reshape(-1) for part in x_tH.split(each, 1)])
        unit = tokens * rest.numel()
        own = each[self.rank]
        got = self._exchange(sent, [unit * share for share in each], [unit * own] * self.ranks)
        return got.view(self.ranks * tokens, own, *rest)

    def exchange_to_tokens(self, x_Th: Tensor, heads: int) -> Tensor:
        (whole, own), rest = x_Th.shape[:2], x_Th.shape[2:]
        each, tokens = shares(heads, self.ranks), whole // self.ranks
        unit = tokens * rest.numel()
        got = self._exchange(
            x_Th.reshape(-1), [unit * own] * self.ranks, [unit * share for share in each]
        )
        ends = list(accumulate(unit * share for share in each))
        return torch.cat(
            [
                got[end - unit * share : end].view(tokens, share, *rest)
                for end, share in zip(ends, each, strict=True)
            ],
            1,
        )

    def _exchange(self, sent: Tensor, sizes: list[int], got_sizes: list[int]) -> Tensor:
        got = sent.new_empty(sum(got_sizes))
        dist.all_to_all_single(got, sent, got_sizes, sizes, group=self._group)
        return got


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_tH: Tensor, slices: Slices) -> Tensor:
        ctx.slices, ctx.heads = slices, x_tH.shape[1]
        return slices.exchange_to_heads(x_tH)

    @staticmethod
    def backward(ctx: Any, grad_Th: Tensor) -> tuple[Tensor, None]:
        return ctx.slices.exchange_to_tokens(grad_Th, ctx.heads), None


class _ToTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_Th: Tensor, heads: int, slices: Slices) -> Tensor:
        ctx.slices = slices
        return slices.exchange_to_tokens(x_Th, heads)

    @staticmethod
    def backward(ctx: Any, grad_tH: Tensor) -> tuple[Tensor, None, None]:
        return ctx.slices.exchange_to_heads(grad_tH), None, None
