"""Context parallelism: a group of neighbouring ranks shares each row.

| computation | tokens of a rank | heads of a rank |
|---|---|---|
| attention | all tokens of the row | a share of the heads |
| the rest of the model | a slice of the row | all heads |

One all-to-all before attention and one after attention exchange the activations. Attention works on
an ordinary packed row. Therefore sequences may begin anywhere, and need no padding.

If the number of heads is not a multiple of the number of ranks, some ranks compute one more head
than others. Every rank of the group reads the whole row to compute masks, token dropout and the
angles of rotary embeddings.

Source: DeepSpeed-Ulysses (Jacobs et al., 2023).

Shape suffixes: T = tokens of the row, t = tokens of a slice, H = all heads, h = heads of a rank.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def shares(whole: int, ranks: int) -> list[int]:
    """Return the share of each rank if `whole` is divided as evenly as possible, larger shares
    first.
    """
    return [whole // ranks + (rank < whole % ranks) for rank in range(ranks)]


class Slices:
    """Division of a row over the ranks of a group. Without arguments, the group has one rank, which
    holds the whole row.
    """

    def __init__(self, *, rank: int = 0, ranks: int = 1, group: Any = None) -> None:
        """Args:
        rank: rank of this process within the group.
        ranks: number of ranks in the group.
        group: process group of these ranks; None for a group of one rank.
        """
        self.rank, self.ranks, self._group = rank, ranks, group

    def heads(self, heads: int) -> int:
        """Return the number of heads for which this rank computes attention."""
        return shares(heads, self.ranks)[self.rank]

    def own(self, x_T: Tensor) -> Tensor:
        """Return a view of this rank's slice of a tensor [T, …]. T must be a multiple of the number
        of ranks.
        """
        length = x_T.shape[0] // self.ranks
        return x_T.narrow(0, self.rank * length, length)

    def to_heads(self, x_tH: Tensor) -> Tensor:
        """Send activations [t, H, …] (this rank's tokens, all heads) to the other ranks. Return
        [T, h, …] (all tokens, this rank's heads).
        """
        return x_tH if self.ranks == 1 else _ToHeads.apply(x_tH, self)

    def to_tokens(self, x_Th: Tensor, heads: int) -> Tensor:
        """Send activations [T, h, …] (all tokens, this rank's heads) to the other ranks. Return
        [t, H, …] (this rank's tokens, all heads).

        Args:
            heads: H, number of all heads.
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
