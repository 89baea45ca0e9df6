"""Context parallelism: neighbouring ranks share a row. Each holds a slice of its tokens, and
computes attention over all tokens for a share of the heads.

An all-to-all before attention turns slices of all heads into all tokens of some heads; another one
after attention turns them back. Attention itself sees an ordinary packed row, so sequences may
begin anywhere and need no padding. Heads that do not divide evenly are shared unevenly. Masks,
token dropout and angles are computed from the whole row, which every rank of the group reads.

Source: DeepSpeed-Ulysses (Jacobs et al., 2023).
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def shares(whole: int, ranks: int) -> list[int]:
    """Divide `whole` among ranks as evenly as possible, larger shares first."""
    return [whole // ranks + (rank < whole % ranks) for rank in range(ranks)]


class Slices:
    """A row divided over the ranks of a group. Without arguments: one rank, which holds the whole
    row.
    """

    def __init__(self, *, rank: int = 0, ranks: int = 1, group: Any = None) -> None:
        """rank: of this process in the group. ranks: size of the group."""
        self.rank, self.ranks, self._group = rank, ranks, group

    def heads(self, heads: int) -> int:
        """Return the number of heads for which this rank computes attention."""
        return shares(heads, self.ranks)[self.rank]

    def own(self, x_T: Tensor) -> Tensor:
        """Return this rank's slice of a tensor with one entry per token, as a view. T is a multiple
        of the number of ranks.
        """
        length = x_T.shape[0] // self.ranks
        return x_T.narrow(0, self.rank * length, length)

    def to_heads(self, x_tH: Tensor) -> Tensor:
        """Turn [t, H, …] of this rank's tokens and all heads into [T, h, …] of all tokens and this
        rank's heads.
        """
        return x_tH if self.ranks == 1 else _ToHeads.apply(x_tH, self)

    def to_tokens(self, x_Th: Tensor, heads: int) -> Tensor:
        """Turn [T, h, …] of all tokens and this rank's heads into [t, H, …] of this rank's tokens
        and all heads. H is `heads`.
        """
        return x_Th if self.ranks == 1 else _ToTokens.apply(x_Th, heads, self)

    def exchange_to_heads(self, x_tH: Tensor) -> Tensor:
        (tokens, heads), rest = x_tH.shape[:2], x_tH.shape[2:]
        each = shares(heads, self.ranks)
        sent = torch.cat([part.reshape(-1) for part in x_tH.split(each, 1)])
        unit = tokens * rest.numel()
        own = each[self.rank]
        received = self._exchange(sent, [unit * share for share in each], [unit * own] * self.ranks)
        return received.view(self.ranks * tokens, own, *rest)

    def exchange_to_tokens(self, x_Th: Tensor, heads: int) -> Tensor:
        (whole, own), rest = x_Th.shape[:2], x_Th.shape[2:]
        each, tokens = shares(heads, self.ranks), whole // self.ranks
        unit = tokens * rest.numel()
        received = self._exchange(
            x_Th.reshape(-1), [unit * own] * self.ranks, [unit * share for share in each]
        )
        ends = list(accumulate(unit * share for share in each))
        return torch.cat(
            [
                received[end - unit * share : end].view(tokens, share, *rest)
                for end, share in zip(ends, each, strict=True)
            ],
            1,
        )

    def _exchange(self, sent: Tensor, sizes: list[int], got_sizes: list[int]) -> Tensor:
        received = sent.new_empty(sum(got_sizes))
        dist.all_to_all_single(received, sent, got_sizes, sizes, group=self._group)
        return received


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
