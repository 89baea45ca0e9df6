"""Random ESM-2 models, random sequences, and pairs of a Hugging Face model and an Esm2 model with
the same weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from trainer.config import ComputeOptions
from trainer.distributed.topology import single_process
from trainer.model.esm2 import Esm2, SequenceLayout, rope_frequencies
from trainer.model.esm_tensors import from_esm
from trainer.model.initialize import build, fill

if TYPE_CHECKING:
    from transformers import EsmForMaskedLM

CPU = torch.device("cpu")
TORCH = ComputeOptions(backend="torch", precision="fp32")
SMALL = ModelOptions(layers=2, hidden_size=64, heads=4, ffn_size=128)
ALONE = single_process(CPU)


def initialized(dtype: torch.dtype = torch.float32) -> tuple[Esm2, dict[str, Tensor]]:
    """Return an Esm2 of shape SMALL with initial weights of this dtype, and fp32 master weights."""
    built = build(SMALL, TORCH)
    for parameter in built.parameters():
        parameter.data = parameter.data.to(dtype)
    return built, fill(built, {}, seed=0, topology=ALONE)


def esm(shape: ModelOptions, *, fp16_frequencies: bool = False) -> EsmForMaskedLM:
    """Return a random EsmForMaskedLM.

    Its weights are large, so that attention is far from uniform. A wrong rotary embedding then
    changes the logits visibly.

    Args:
        fp16_frequencies: round inv_freq to fp16, as published checkpoints do.
    """
    from transformers import (  # slow to import, and few tests need it
        EsmConfig,
        EsmForMaskedLM,
    )

    config = EsmConfig(
        vocab_size=33,
        mask_token_id=32,
        pad_token_id=1,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.ffn_size,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        position_embedding_type="rotary",
        token_dropout=True,
        layer_norm_eps=1e-5,
        emb_layer_norm_before=False,
    )
    with torch.device("meta"):  # skips initial values, which take a minute to draw
        model = EsmForMaskedLM(config).eval()
    model.to_empty(device=CPU)
    model.tie_weights()
    # Repeat a million random numbers, because drawing 300 million takes five seconds. The count is
    # a prime, so that rows of a matrix do not repeat.
    base = torch.empty(1_000_003).uniform_(-1, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            bound = (3 / parameter.shape[-1]) ** 0.5 if parameter.ndim > 1 else 0.1
            for piece in parameter.view(-1).split(base.numel()):
                torch.mul(base[: piece.numel()], bound, out=piece)
        for name, parameter in model.named_parameters():
            if "layer_norm" in name.lower() or "layernorm" in name.lower():
                parameter.add_(float(name.endswith("weight")))
            elif ".query.weight" in name:
                parameter.mul_(3.0)
        frequencies = rope_frequencies(shape.head_size)
        model.esm.rotary_embeddings.inv_freq.copy_(
            frequencies.half().float() if fp16_frequencies else frequencies
        )
    return model


def ours(shape: ModelOptions, theirs: EsmForMaskedLM) -> Esm2:
    """Return an Esm2 with the weights of a Hugging Face model."""
    model = build(shape, TORCH)
    fill(model, from_esm(theirs.state_dict(), shape), seed=0, topology=ALONE)
    return model


def sequences(*residues: int) -> list[Tensor]:
    """Return the tokens of random sequences.

    Args:
        residues: number of residues of each sequence.
    """
    return [
        torch.cat([torch.tensor([ESM2.cls]), torch.randint(4, 24, (n,)), torch.tensor([ESM2.eos])])
        for n in residues
    ]


def packed(rows: list[Tensor], *, slots: int = 8, tail: int = 3) -> tuple[Tensor, SequenceLayout]:
    """Return the sequences as one THD row: concatenated, then `tail` tokens of padding."""
    ids = torch.cat([*rows, torch.full((tail,), ESM2.pad)])
    ends = np.cumsum([0, *(row.numel() for row in rows), tail])
    cu_seqlens = torch.full((slots + 1,), ids.numel(), dtype=torch.int32)
    cu_seqlens[: ends.size] = torch.from_numpy(ends).int()
    return ids, SequenceLayout(cu_seqlens, 1024)


def padded(rows: list[Tensor]) -> Tensor:
    """Return the sequences as one padded batch (BSHD)."""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=ESM2.pad)
