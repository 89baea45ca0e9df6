"""Division of tensors by rows among ranks (`--shard optimizer`). Every rank holds the whole model,
and updates some rows of each large tensor.

Source: ZeRO, stage 1 (Rajbhandari et al., SC 2020).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

# torch 2.13 renamed these two functions.
all_gather: Final = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter: Final = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

SMALLEST: Final = 1 << 16
"""Minimum number of elements of a divided tensor. Smaller tensors are not divided, because each
divided tensor costs a collective in each step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowShards:
    """The rows of each tensor that belong to this rank.

    A tensor is divided if it is large and its number of rows is a multiple of `ranks`. Other
    tensors, such as biases, are updated completely by every rank.

    rank: number of this rank's part.
    ranks: number of parts; 1 if nothing is divided.
    world_size: number of ranks in the job.
    mesh: DeviceMesh of the ranks; None if nothing is divided.
    """

    rank: int = 0
    ranks: int = 1
    world_size: int = 1
    mesh: Any = None

    def divides(self, tensor: Tensor) -> bool:
        return self.ranks > 1 and tensor.numel() >= SMALLEST and tensor.shape[0] % self.ranks == 0

    def own(self, tensor: Tensor) -> Tensor:
        """Return a view of this rank's rows. Return the whole tensor if it is not divided."""
        if not self.divides(tensor):
            return tensor
        rows = tensor.shape[0] // self.ranks
        return tensor[self.rank * rows : (self.rank + 1) * rows]

    def distributed(self, own: Tensor, whole: Tensor) -> Tensor:
        """Return this rank's rows as a part of a DTensor, for checkpoints. The DTensor shares the
        memory of `own`.

        Args:
            own: this rank's rows.
            whole: a tensor with the shape of all rows together.
        """
        if not self.divides(whole):
            return own
        return DTensor.from_local(own, self.mesh, [Shard(0)], run_check=False)

    def gather(self, tensors: Iterable[Tensor]) -> None:
        """Receive the rows that other ranks have updated. All ranks must call this."""
        for tensor in tensors:
            if self.divides(tensor):
                own = self.own(tensor)
                # With NCCL, the input may be a part of the output. gloo needs a copy of the input.
                all_gather(tensor, own if own.is_cuda else own.clone())
