"""Exchange of matrices whose rows are divided among ranks.

Muon needs whole matrices. An all-to-all gives each rank the whole of some matrices, and a second
all-to-all brings the results back. Each value is thus sent once in each direction, and no rank ever
holds all matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixExchange:
    """Exchange among the ranks of a process group. With one rank, nothing is sent.

    ranks: number of ranks in the group.
    group: process group of these ranks; None for a group of one rank.
    """

    ranks: int = 1
    group: Any = None

    def whole(self, rows: Tensor) -> Tensor:
        """Return whole matrices: this rank's share of the n matrices, filled up with zeros. All
        ranks of the group must call this.

        Args:
            rows: [n, r, columns], this rank's rows of n matrices.
        Returns:
            [⌈n / ranks⌉, r * ranks, columns].
        """
        if self.ranks == 1:
            return rows
        n, r, columns = rows.shape
        share = -(-n // self.ranks)
        sent = F.pad(rows, (0, 0, 0, 0, 0, share * self.ranks - n))
        parts = self._exchanged(sent).view(self.ranks, share, r, columns)
        return parts.transpose(0, 1).reshape(share, self.ranks * r, columns)

    def rows(self, whole: Tensor, n: int) -> Tensor:
        """Reverse `whole`: return this rank's rows of n matrices. All ranks must call this.

        Args:
            whole: [⌈n / ranks⌉, r * ranks, columns], the matrices that `whole` gave this rank.
        Returns:
            [n, r, columns].
        """
        if self.ranks == 1:
            return whole
        share, height, columns = whole.shape
        sent = whole.reshape(share, self.ranks, height // self.ranks, columns).transpose(0, 1)
        return self._exchanged(sent).view(-1, height // self.ranks, columns)[:n]

    def _exchanged(self, sent: Tensor) -> Tensor:
        """Send the i-th part of a tensor to rank i. Return the parts that came from each rank."""
        sent = sent.contiguous()
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.group)
        return received
