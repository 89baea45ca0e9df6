"""What training takes: memory by part and time of a step, from a formula fitted to measured steps.

Fitted to those rows of benchmarks/training/measured.json that say so, all of NVIDIA H200s; `python -m benchmarks.training.fit_estimate` fits anew, and prints
the errors on the rows that were left out (docs/benchmarks.md). Memory is what torch allocates at its peak. Backend te.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from schemas.manifest import Manifest
from schemas.models import ModelOptions, Recompute, longest_of_our_attention

Reshard = Literal["layer", "step"]

ACTIVATION_BYTES: Final = {
    ("none", False): 32.4,
    ("none", True): 27.6,
    ("selective", False): 15.1,
    ("full", False): 5.35,
}
"""A token, a layer and a unit of hidden size; by recomputation, and whether matrix products run in FP8. Recomputed, FP8 is taken for bf16."""
CONSTANT_BYTES: Final = 1 << 28
GATHERED_LAYERS: Final = 3
"""Layers whose parameters and gradients are whole at a time, under `--reshard layer`: one computes, one is on its way, one is being reduced."""

ROOM: Final = 0.93
"""Share of a GPU's memory that a run may be planned to take; fragments, communication buffers and the CUDA context have the rest."""

COEFFICIENTS: Final = {
    "bf16": 1.53,
    "fp8": 0.849,
    "narrow": 0.567,
    "attention": 108.0,
    "long_attention": 177.0,
    "cast": 15.6,
    "layer": 0.294,
    "update": 4.44,
    "sums": 2.03,
    "selective": 1.17,
    "full": 1.26,
    "eager": 0.0202,
    "step_traffic": 8.54,
    "layer_traffic": 2.04,
}
"""ms a TFLOP of matrix products (bf16, fp8; narrow: and 1,000 / hidden size more), of attention (long: by cuDNN's
kernels, where sequences may be too long for ours); ms a GB of activations cast; ms a layer; ms a billion
parameters for the optimizer and for adding up gradients; factors of recomputation; share that an eager step takes more than a captured one; ms a GB of
traffic that is not hidden, once a step or in each layer."""
HOST_MS: Final = {
    ("step", False): 4.5,
    ("step", True): 6.2,
    ("layer", False): 6.9,
    ("layer", True): 9.5,
}
"""A slow host launches a layer of an eager micro-batch in this time, by reshard and FP8: a step is never faster."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One way to train.

    tokens, real_tokens, squares: places, tokens and Σ length² of a micro-batch, over the ranks that share it. max_seqlen: the dataset's. shards: ranks
    of a copy of the parameters.
    """

    model: ModelOptions
    tokens: int
    real_tokens: float
    squares: float
    max_seqlen: int
    fp8: bool
    micro_batches: int = 1
    recompute: Recompute = "none"
    ranks: int = 1
    shards: int = 1
    context_parallel: int = 1
    reshard: Reshard = "step"
    captured: bool = False

    @classmethod
    def on(cls, manifest: Manifest, buckets: int, **others: Any) -> Self:
        """Micro-batches of so many average buckets of a dataset's train split, which is not empty; `others` are the fields that are not the dataset's."""
        train = manifest.splits["train"]
        return cls(
            tokens=buckets * manifest.capacity,
            real_tokens=buckets * train.tokens / train.buckets,
            squares=buckets * train.cost_sum / train.buckets,
            max_seqlen=manifest.max_seq_len,
            **others,
        )

    @property
    def step_tokens(self) -> float:
        """Real tokens of a step, over all ranks."""
        return self.real_tokens * self.micro_batches * self.ranks / self.context_parallel


def memory(setting: Setting) -> dict[str, float]:
    """Bytes of one GPU at the peak, by part."""
    model, p = setting.model, setting.model.parameters
    accumulates = setting.micro_batches > 1
    whole = setting.ranks == 1 or setting.reshard == "step"
    gathered = 0.0
    if setting.ranks > 1:
        gathered = (
            p * (2 + 4 * accumulates) if whole else GATHERED_LAYERS * (2 + 1) * p / model.layers
        )
    sums = (
        4 * p / setting.shards
        if accumulates and (setting.ranks == 1 or setting.reshard == "layer")
        else 0.0
    )
    a_token = (
        ACTIVATION_BYTES[setting.recompute, setting.fp8 and setting.recompute == "none"]
        * model.layers
        * model.hidden_size
    )
    return {
        "parameters (bf16)": 2 * p / setting.shards,
        "masters and Adam's state (fp32)": 12 * p / setting.shards,
        "sums of gradients (fp32)": sums,
        "gathered parameters and gradients": gathered,
        "FP8 copies of weights": 2.0 * p * (setting.fp8 and whole),
        "activations": a_token * setting.tokens / setting.context_parallel,
        "the rest": float(CONSTANT_BYTES),
    }


def seconds(setting: Setting) -> float:
    """Of a step."""
    model, c = setting.model, COEFFICIENTS
    share = 1 / setting.context_parallel
    features = step_features(setting)
    per_token = (
        features["bf16"] * c["bf16"]
        + features["fp8"] * c["fp8"]
        + features["narrow"] * c["narrow"]
        + features["cast"] * c["cast"]
    )
    attention = c[
        "attention"
        if setting.max_seqlen <= longest_of_our_attention(model.head_size)
        else "long_attention"
    ]
    micro_batch = (per_token + features["attention"] * attention) * share + features["layer"] * c[
        "layer"
    ]
    again = {"none": 1.0, "selective": c["selective"], "full": c["full"]}[setting.recompute]
    micro_batch *= again
    billions = model.parameters / 1e9
    if setting.micro_batches > 1:
        micro_batch += c["sums"] * billions / (setting.shards if setting.reshard == "layer" else 1)
    if not setting.captured:
        micro_batch *= 1 + c["eager"]
    traffic = (setting.shards - 1) / setting.shards * billions
    if setting.ranks > 1 and setting.reshard == "layer":
        micro_batch += c["layer_traffic"] * 8 * traffic
    if not setting.captured and setting.ranks > 1:
        micro_batch = max(micro_batch, HOST_MS[setting.reshard, setting.fp8] * model.layers * again)
    step = micro_batch * setting.micro_batches + c["update"] * billions / setting.shards
    if setting.ranks > 1 and setting.reshard == "step":
        step += c["step_traffic"] * 6 * traffic
    return step / 1e3


def step_features(setting: Setting) -> dict[str, float]:
    """What the time of a micro-batch is linear in."""
    model = setting.model
    d = model.hidden_size
    products = (
        6 * model.layers * (4 * d * d + 2 * d * model.ffn_size) * setting.tokens
        + 6 * (d * d + 64 * d) * 0.17 * setting.tokens
    )
    tera = products / 1e12
    return {
        "bf16": 0.0 if setting.fp8 else tera,
        "fp8": tera if setting.fp8 else 0.0,
        "narrow": tera * 1000 / d,
        "attention": 12 * model.layers * model.heads * setting.squares / 1e12,
        "cast": model.layers * setting.tokens * d / 1e9 * setting.fp8,
        "layer": float(model.layers),
    }
