"""ESM-2 on rows of packed sequences (THD) or of padded sequences (BSHD). Parameters and entries of
state dicts have the same names in backend te and in backend torch.

The model computes the same function as published checkpoints. The tests compare it with Hugging
Face's EsmForMaskedLM.
- The layers are pre-norm. GELU is exact by default; --gelu tanh selects the approximation.
- Rotary embeddings are computed in fp32 from the `inv_freq` of the checkpoint.
- The decoder uses the embedding as its weights, and has its own bias.
- Token dropout zeroes the embeddings of <mask>, and scales the other embeddings of a sequence. Its
  constant is 0.12 for any mask rate, in training and in evaluation.

Shape suffixes:
T = tokens of a row, t = tokens of this rank's slice (without context parallelism, t = T),
M = tokens to predict, S = sequences, D = hidden size, F = feed-forward size, H = heads,
R = head size, V = vocabulary padded to 64.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from trainer import precision
from trainer.config import ComputeOptions
from trainer.distributed.context_parallel import Slices

VOCABULARY: Final = len(ESM2)
PADDED_VOCABULARY: Final = 64
"""Vocabulary size after padding. The matrix product of the decoder needs a size that is a multiple
of 16. Logits of the padding are -inf.
"""
NORM_EPSILON: Final = 1e-5
MASK_RATIO_OF_TRAINING: Final = 0.15 * 0.8
"""Constant of token dropout: the share of <mask> in the training of the published ESM-2.
--mask-probability does not change this constant. Hugging Face's model has the same constant."""
INIT_STD: Final = 0.02


@dataclass(frozen=True, slots=True)
class SequenceLayout:
    """Boundaries of the sequences in a row of T tokens.

    cu_seqlens: int32[S + 1], cumulative lengths. Span i has the tokens cu_seqlens[i] to
        cu_seqlens[i + 1] - 1. Tokens attend to their own span only. The last spans may be empty.
    max_seqlen: upper limit of the length of a span; a Python int, so that no kernel launch waits
        for the GPU.
    lengths: int32[S], number of real tokens in each span, if every span is padded to max_seqlen
        tokens (BSHD); None if sequences are packed (THD).
    """

    cu_seqlens: Tensor
    max_seqlen: int
    lengths: Tensor | None = None

    @staticmethod
    def padded(lengths: Tensor, columns: int) -> SequenceLayout:
        """Return the layout of S sequences that are padded to `columns` tokens each.

        Args:
            lengths: integers[S], number of real tokens at the beginning of each sequence.
        """
        return SequenceLayout(
            torch.arange(lengths.numel() + 1, dtype=torch.int32, device=lengths.device) * columns,
            columns,
            lengths.int(),
        )


class Esm2(nn.Module):
    """The masked language model."""

    inv_freq: Tensor

    def __init__(
        self, options: ModelOptions, compute: ComputeOptions, layer: Any, slices: Slices
    ) -> None:
        """Args:
        layer: Python module of the backend, trainer.model.layer_te or trainer.model.layer_torch.
        slices: division of a row over ranks.
        """
        super().__init__()
        self._slices = slices
        d = options.hidden_size
        self.options = options
        self._backend = layer
        self.embedding = nn.Parameter(torch.empty(PADDED_VOCABULARY, d))
        self.layers = nn.ModuleList()
        for low in precision.low_layers(compute, options.layers):
            with precision.parameters(compute, low=low):
                block = layer.Layer(options, compute.recompute, slices)
            block.stays_bf16 = precision.is_low(compute.precision) and not low
            self.layers.append(block)
        self.norm = nn.LayerNorm(d, eps=NORM_EPSILON)
        self.head = Head(d)
        self.register_buffer("inv_freq", torch.empty(options.head_size // 2, dtype=torch.float32))
        # The contact head predicts contacts from attention maps. The trainer only imports and
        # exports its tensors.
        self.contact_head = nn.Module()
        self.contact_head.register_buffer(
            "weight", torch.empty(1, options.layers * options.heads, dtype=torch.float32)
        )
        self.contact_head.register_buffer("bias", torch.empty(1, dtype=torch.float32))

    def forward(
        self, input_ids_T: Tensor, sequences: SequenceLayout, index_M: Tensor | None = None
    ) -> Tensor:
        """Return logits of tokens in this rank's slice.

        Args:
            input_ids_T: int32[T] or int64[T], tokens of the whole row.
            sequences: layout of the whole row.
            index_M: int64[M], positions of the tokens to predict within the slice; None for all
                tokens of the slice.
        Returns:
            float32[M, V], or float32[t, V] without index_M.
        """
        ((x_tD, update_tD),) = deque(self._states(input_ids_T, sequences), maxlen=1)
        x_tD = x_tD + update_tD
        if index_M is not None:
            # Training needs logits for 15 % of the tokens only.
            x_tD = x_tD.index_select(0, index_M)
        return self.head(self.norm(x_tD), self.embedding)

    def hidden_states(
        self, input_ids_T: Tensor, sequences: SequenceLayout, layers: Sequence[int]
    ) -> list[Tensor]:
        """Return hidden states of tokens in this rank's slice.

        Args:
            input_ids_T, sequences: see `forward`.
            layers: numbers of layers, as in `hidden_states` of transformers: 0 is the embedding,
                and i is the output of layer i. The output of the last layer is normalized.
        Returns:
            [t, D] for each number, in the order of `layers`.
        """
        found = {}
        for layer, (x_tD, update_tD) in enumerate(self._states(input_ids_T, sequences)):
            if layer in layers:
                found[layer] = x_tD + update_tD
        last = len(self.layers)
        if last in found:
            found[last] = self.norm(found[last])
        return [found[layer] for layer in layers]

    def _states(
        self, input_ids_T: Tensor, sequences: SequenceLayout
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the residual stream [t, D] and an update [t, D]: those of the embedding, then those
        of each layer. The hidden state is their sum.

        A layer does not add its update to the residual stream. The next layer does. A fused kernel
        of backend te can then add and normalize in one pass over memory.
        """
        # The index of a token's span is the number of spans that end at or before the token.
        tokens_T = torch.arange(input_ids_T.numel(), dtype=torch.int32, device=input_ids_T.device)
        span_T = torch.searchsorted(sequences.cu_seqlens[1:], tokens_T, right=True)
        update_tD = self._embed(input_ids_T, sequences, span_T)
        with torch.autocast(update_tD.device.type, enabled=False):
            angles_TR = (tokens_T - sequences.cu_seqlens[span_T]).float()[:, None] * self.inv_freq
        context = self._backend.Context(sequences, angles_TR, self._slices)
        x_tD = torch.zeros_like(update_tD)
        yield x_tD, update_tD
        for layer in self.layers:
            x_tD, update_tD = layer(x_tD, update_tD, context)
            yield x_tD, update_tD

    def _embed(self, input_ids_T: Tensor, sequences: SequenceLayout, span_T: Tensor) -> Tensor:
        """Return embeddings [t, D] of this rank's slice, with ESM-2's token dropout. The embedding
        of <mask> is zero. The other tokens of a sequence are scaled by (1 - 0.12) / (1 - share of
        <mask> in the sequence).
        """
        masked_T = input_ids_T == ESM2.id("<mask>")
        before = F.pad(masked_T.cumsum(0, dtype=torch.int32), (1, 0))
        masked_S = before[sequences.cu_seqlens[1:]] - before[sequences.cu_seqlens[:-1]]
        lengths_S = sequences.cu_seqlens.diff() if sequences.lengths is None else sequences.lengths
        # The scale of an empty span is NaN. No token uses it.
        scale_S = (1 - MASK_RATIO_OF_TRAINING) / (1 - masked_S / lengths_S)
        scale_T = scale_S[span_T].masked_fill(masked_T, 0.0)
        x_tD = F.embedding(self._slices.own(input_ids_T), self.embedding)
        return (x_tD * self._slices.own(scale_T)[:, None]).to(x_tD.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Keep inv_freq in fp32 if the model is cast, for example by `.to(torch.bfloat16)`. If
        inv_freq were rounded to bf16, angles would be wrong by a radian after a few hundred
        residues.
        """
        kept = self.inv_freq
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch has no types here
        if self.inv_freq.dtype != torch.float32:
            self.inv_freq = kept.to(self.inv_freq.device)
        return self

    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return name and value of each trained parameter. The names are the same for each backend
        and with any wrapper (FSDP2, torch.compile).
        """
        return ((tensor_name(name), parameter) for name, parameter in self.named_parameters())

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield name and value of each tensor of the model, trained parameters first."""
        yield from self.named_weights()
        yield from self.named_buffers()


class Head(nn.Module):
    """Language-model head: linear map, GELU, LayerNorm, and a decoder whose weights are the
    embedding.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=NORM_EPSILON)
        self.bias = nn.Parameter(torch.empty(VOCABULARY))

    def forward(self, x_MD: Tensor, embedding_VD: Tensor) -> Tensor:
        x_MD = self.norm(F.gelu(self.dense(x_MD)))
        bias_V = F.pad(self.bias.float(), (0, PADDED_VOCABULARY - VOCABULARY), value=-torch.inf)
        return F.linear(x_MD, embedding_VD).float() + bias_V


def tensor_name(name: str) -> str:
    """Convert a parameter's name in the backend's modules to its name in checkpoints. Checkpoints
    use the names of Transformer Engine's LayerNormLinear and LayerNormMLP.
    """
    return re.sub(
        r"\.fc1\.(layer_norm_\w+)$",
        r".\1",
        re.sub(r"\.fc([12])\.(weight|bias)$", r".fc\1_\2", name),
    )


def rope_frequencies(head_size: int) -> Tensor:
    """Return the frequencies of the rotary embedding, float32[head_size / 2].

    Source: Su et al., RoFormer, 2021.
    """
    return 1.0 / (10_000 ** (torch.arange(0, head_size, 2, dtype=torch.float32) / head_size))
