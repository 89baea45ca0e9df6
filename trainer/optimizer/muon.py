"""Muon for the matrices of the layers, with an adaptive scale for each row (NorMuon).

An update is the orthogonalized mean of gradients. Each of its rows is divided by the root of a
running mean of its squares. A row then has a root mean square of about 1, which UPDATE scales to
the size of AdamW's updates. Both optimizers can therefore share a learning rate.

Sources: Muon (Jordan et al., 2024), NorMuon (Li et al., 2025), and the scale of updates of
Moonlight (Liu et al., 2025). NorMuon also divides by the norm of the matrix. Here the running mean
is corrected for its start at zero instead, because a norm would need a collective in each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from trainer.distributed.fsdp import local
from trainer.distributed.matrix_exchange import MatrixExchange
from trainer.distributed.row_shards import RowShards
from trainer.optimizer.orthogonal import orthogonalized

MOMENTUM: Final = 0.95
"""Decay rate of the mean of gradients."""
ROW_DECAY: Final = 0.95
"""Decay rate of the mean of each row's squares."""
UPDATE: Final = 0.2
"""Root mean square of an update, divided by the learning rate."""
CHUNK: Final = 1 << 26
"""Maximum number of values that are updated at once. A chunk needs about 20 bytes of temporary
memory for each of its values."""


def is_matrix_of_layers(name: str, parameter: Tensor) -> bool:
    """Return True if Muon updates the parameter. AdamW updates embeddings, biases and norms."""
    return parameter.ndim == 2 and name != "embedding"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Matrices of one shape, which are updated together.

    places: places of the matrices in the lists that `Muon` gets.
    exchange: exchange of their rows among ranks.
    parts: number of matrices that are stacked, row by row of a head, in one parameter: 3 for the
        fused weights of queries, keys and values, else 1.
    momentum: float32[r, columns] for each matrix, mean of gradients of this rank's rows.
    squares: float32[r, 1] for each matrix, mean of squares of each row of earlier updates.

    The state is not one tensor for the whole chunk, because checkpoints cannot save a DTensor that
    does not begin at the beginning of its memory.
    """

    places: Sequence[int]
    exchange: MatrixExchange
    parts: int
    momentum: list[Tensor]
    squares: list[Tensor]


class Muon:
    """Muon step on fp32 masters."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        masters: Mapping[str, Tensor],
        *,
        heads: int,
        weight_decay: float,
        shards: RowShards,
    ) -> None:
        """Args:
        parameters: parameters by name.
        masters: fp32 values that the steps update, by the same names.
        heads: number of attention heads.
        shards: rows of the parameters that this rank updates, unless FSDP2 shards the parameters.
        Raises:
            ValueError: FSDP2 has given ranks different numbers of rows.
        """
        self._masters, self._heads, self._weight_decay = list(masters.values()), heads, weight_decay
        self._chunks: list[Chunk] = []
        self._state: dict[str, tuple[Tensor, Tensor]] = {}
        names, groups = list(masters), dict[Any, list[int]]()
        for place, name in enumerate(names):
            exchange = _exchange(name, parameters[name], masters[name], shards)
            shape = tuple(local(masters[name]).shape)
            parts = 3 if name.endswith("qkv.weight") else 1
            groups.setdefault((shape, parts, exchange), []).append(place)
        for (shape, parts, exchange), places in groups.items():
            whole = shape[0] * shape[1] * exchange.ranks
            size = max(1, CHUNK // whole) * exchange.ranks
            for begin in range(0, len(places), size):
                self._add(names, places[begin : begin + size], exchange, parts)

    def _add(
        self, names: Sequence[str], places: Sequence[int], exchange: MatrixExchange, parts: int
    ) -> None:
        first = local(self._masters[places[0]])
        momentum, squares = (
            [torch.zeros(first.shape[0], columns, device=first.device) for _ in places]
            for columns in (first.shape[1], 1)
        )
        self._chunks.append(Chunk(places, exchange, parts, momentum, squares))
        for place, state in zip(places, zip(momentum, squares, strict=True), strict=True):
            self._state[names[place]] = state

    @torch.no_grad()
    def step(
        self, grads: Sequence[Tensor], *, rate: Tensor, scale: Tensor, skip: Tensor, applied: Tensor
    ) -> None:
        """Run one step on the masters, unless `skip` is true. All ranks must call this.

        Args:
            grads: gradients of this rank's rows. The step multiplies them by `scale`.
            rate: learning rate, scalar on the device.
            scale: scalar on the device.
            skip: bool[] on the device.
            applied: int64[] on the device, number of earlier steps that were not skipped.
        """
        if not self._chunks:
            return
        taken = (~skip).float()
        rate = (taken * rate).float()
        grown = (1 - ROW_DECAY ** (applied.double() + 1)).float()
        for chunk in self._chunks:
            grad = torch.stack([grads[place] for place in chunk.places]).float() * scale.float()
            grad.masked_fill_(skip, 0.0)
            momentum = _approached(chunk.momentum, grad, (1 - MOMENTUM) * taken)
            update = self._orthogonalized(chunk, grad.lerp_(momentum, MOMENTUM))
            square = update.square().mean(dim=2, keepdim=True)
            squares = _approached(chunk.squares, square, (1 - ROW_DECAY) * taken)
            update *= UPDATE * (squares / grown + 1e-12).rsqrt() * -rate
            masters = [local(self._masters[place]) for place in chunk.places]
            torch._foreach_mul_(masters, 1 - rate * self._weight_decay)
            torch._foreach_add_(masters, list(update))

    def _orthogonalized(self, chunk: Chunk, update: Tensor) -> Tensor:
        """Return the orthogonalized matrices, float32 like `update` [n, r, columns]."""
        precise = update if not update.is_cuda else update.bfloat16()
        whole = chunk.exchange.whole(precise)
        matrices = _split(whole, chunk.parts, self._heads)
        result = _joined(orthogonalized(matrices), chunk.parts, self._heads)
        return chunk.exchange.rows(result, len(chunk.places)).float()

    def state(self, name: str) -> tuple[Tensor, Tensor]:
        """Return mean of gradients [r, columns] and mean of squares [r, 1] of this rank's rows."""
        return self._state[name]


def _approached(means: list[Tensor], values: Tensor, share: Tensor) -> Tensor:
    """Replace this share of running means by values, and return the new means in one tensor."""
    moved = torch.stack(means).lerp_(values, share)
    torch._foreach_copy_(means, list(moved))
    return moved


def _exchange(name: str, parameter: Tensor, master: Tensor, shards: RowShards) -> MatrixExchange:
    """Return the exchange that makes a matrix whole."""
    if isinstance(master, DTensor) and not shards.divides(parameter):
        dim = next(i for i, placed in enumerate(master.placements) if isinstance(placed, Shard))
        ranks = master.device_mesh.size(dim)
        if master.shape[0] % ranks:
            raise ValueError(
                f"--optimizer muon needs equal shards, and {name} has {master.shape[0]} rows for "
                f"{ranks} ranks: use another number of ranks, or --shard optimizer"
            )
        return MatrixExchange(ranks=ranks, group=master.device_mesh.get_group(dim))
    if shards.divides(parameter):
        return MatrixExchange(ranks=shards.ranks, group=shards.mesh.get_group())
    return MatrixExchange()


def _split(whole: Tensor, parts: int, heads: int) -> Tensor:
    """Split fused weights [n, H * parts * R, D] into matrices [n * parts, H * R, D]."""
    if parts == 1:
        return whole
    n, height, columns = whole.shape
    apart = whole.view(n, heads, parts, height // heads // parts, columns).transpose(1, 2)
    return apart.reshape(n * parts, height // parts, columns)


def _joined(matrices: Tensor, parts: int, heads: int) -> Tensor:
    """Reverse `_split`."""
    if parts == 1:
        return matrices
    count, rows, columns = matrices.shape
    apart = matrices.reshape(count // parts, parts, heads, rows // heads, columns)
    return apart.transpose(1, 2).reshape(count // parts, parts * rows, columns)
