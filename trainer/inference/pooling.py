"""Reduce hidden states to embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from trainer.feed import Row
from trainer.inference.packed_model import RowFunction
from trainer.model.esm2 import Esm2

Pooling = Literal["mean", "cls", "residues"]
"""Kinds of embeddings: the mean over a record's residues, the hidden state of <cls>, and the hidden
states of all residues."""
DTYPES: Final = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def embedder(layers: Sequence[int], pooling: Sequence[Pooling], dtype: torch.dtype) -> RowFunction:
    """Return the function that computes the embeddings of a row.

    Its results are named "<pooling>_<layer>": dtype[slots, D] for mean and cls, dtype[T, D] for
    residues. The mean of each window is over the residues that the window owns.

    Args:
        layers: numbers of layers; see `Esm2.hidden_states`.
    """

    def embed(model: Esm2, row: Row, owned: Tensor) -> Mapping[str, Tensor]:
        found = {}
        hidden = model.hidden_states(row.input_ids.int(), row.sequences, layers)
        for layer, hidden_TD in zip(layers, hidden, strict=True):
            for kind in pooling:
                found[f"{kind}_{layer}"] = _pooled(kind, hidden_TD, row, owned).to(dtype)
        return found

    return embed


def _pooled(kind: Pooling, hidden_TD: Tensor, row: Row, owned: Tensor) -> Tensor:
    if kind == "residues":
        return hidden_TD
    if kind == "cls":
        first_S = row.sequences.cu_seqlens[: owned.numel() // 2].clamp(max=hidden_TD.shape[0] - 1)
        return hidden_TD.index_select(0, first_S)
    counts_S = (owned[1::2] - owned[::2]).clamp(min=1)
    return sums(hidden_TD.float(), owned) / counts_S[:, None]


def sums(values: Tensor, owned: Tensor) -> Tensor:
    """Return the sum over each range of owned tokens, float[slots, …].

    Each sum adds its values one after another, so equal inputs give equal bytes.

    Args:
        values: float[T, …].
        owned: int64[2 × slots]; see `PackedRow`.
    """
    # The ranges alternate with the gaps before them: 0 … begin_0 … end_0 … begin_1 …
    edges = F.pad(owned, (1, 0))
    return torch.segment_reduce(values, "sum", offsets=edges, axis=0, unsafe=True)[1::2]
