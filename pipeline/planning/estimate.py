"""Estimate a training step's memory and time by a formula that was fitted to measured steps.

The formula was fitted to the rows of benchmarks/training/measured.json that are marked `fit`. These
rows were measured on NVIDIA H200s with backend te (Transformer Engine). `python -m
benchmarks.training.fit_estimate` repeats the fit, and prints the formula's errors on the other rows
(docs/benchmarks.md). Memory is the peak of torch's allocations. The memory estimate does not hold
for backend torch, whose memory has not been measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

from schemas.manifest import Manifest
from schemas.models import ModelOptions, Recompute, longest_of_our_attention

Reshard = Literal["layer", "step"]
Shard = Literal["none", "optimizer", "full"]

ACTIVATION_BYTES: Final = {
    ("none", False): 32.4,
    ("none", True): 27.6,
    ("selective", False): 15.1,
    ("full", False): 5.35,
}
"""Bytes of activations for each token, layer and unit of hidden size.

A key is a pair: the value of `--recompute`, and whether matrix products run in FP8. With
recomputation, the figures of bf16 are used for FP8 too."""
CONSTANT_BYTES: Final = 1 << 28
"""Fixed memory in bytes that every setting needs, in addition to the computed parts."""
GATHERED_LAYERS: Final = 3
"""Number of layers whose complete parameters and gradients are in memory at the same time with
`--reshard layer`. One layer computes, one is being gathered, and one is being reduced."""

ROOM: Final = 0.93
"""Largest share of a GPU's memory that a plan uses. The rest is for fragmentation, communication
buffers and the CUDA context."""

COEFFICIENTS: Final = {
    "bf16": 1.48,
    "fp8": 0.836,
    "narrow": 0.52,
    "attention": 167.0,
    "long_attention": 178.0,
    "cast": 11.9,
    "elementwise": 4.93,
    "layer": 0.198,
    "update": 4.26,
    "sums": 1.32,
    "selective": 1.19,
    "full": 1.28,
    "eager": 0.0181,
    "all_reduce": 3.95,
    "step_traffic": 7.53,
    "layer_traffic": 2.22,
}
"""Coefficients of a step's time:

- bf16, fp8: ms per TFLOP of matrix products
- narrow: additional ms per TFLOP of matrix products, to be multiplied by 1,000 / hidden size
- attention: ms per TFLOP of attention by our kernel
- long_attention: ms per TFLOP of attention by cuDNN's kernels, which are used if sequences may be
  too long for our kernel
- cast: ms per GB of activations cast to FP8
- elementwise: ms per GB of hidden states, for norms, GELU and additions
- layer: ms per layer
- update: ms per billion parameters, for the optimizer
- sums: ms per billion parameters, for adding up gradients
- selective, full: factors by which recomputation multiplies the time
- eager: additional share of the time if a step is eager, which means not captured in a CUDA graph
- all_reduce: ms per GB of gradients and parameters that replicas exchange once a step
- step_traffic: ms per GB of traffic that occurs once a step and does not overlap with computation
- layer_traffic: ms per GB of traffic that occurs in each layer and does not overlap with
  computation
"""
HOST_MS: Final = {
    ("step", False): 4.5,
    ("step", True): 6.2,
    ("layer", False): 6.9,
    ("layer", True): 9.5,
}
"""Time in ms that a slow host takes to launch one layer of an eager micro-batch (not captured in a
CUDA graph). On several ranks, a layer takes at least this time.

A key is a pair: the value of `--reshard`, and whether matrix products run in FP8."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Settings of a training run.

    tokens:      tokens of a micro-batch, padding included, over all ranks that share it
    real_tokens: tokens of a micro-batch, without padding, over all ranks that share it
    squares:     Σ length² over the sequences of a micro-batch, over all ranks that share it
    max_seqlen:  longest sequence of the dataset, in tokens
    shard:       state that ranks divide among themselves (the option --shard of the trainer)
    shards:      number of ranks that share one copy of the parameters, if `shard` is "full"
    captured:    whether steps are captured in CUDA graphs
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
    shard: Shard = "full"
    shards: int = 1
    context_parallel: int = 1
    reshard: Reshard = "step"
    captured: bool = False

    @classmethod
    def on(cls, manifest: Manifest, buckets: int, **others: Any) -> Self:
        """Return a setting whose micro-batches consist of `buckets` average buckets of a dataset.

        Args:
            manifest: manifest of the dataset. The train split must not be empty.
            others: fields that do not depend on the dataset.
        """
        train = manifest.splits["train"]
        return cls(
            tokens=buckets * manifest.capacity,
            real_tokens=buckets * train.tokens / train.buckets,
            squares=buckets * train.cost_sum / train.buckets,
            max_seqlen=manifest.max_seq_len,
            **others,
        )

    def merged(self, buckets: int) -> Setting:
        """Return the same step, with micro-batches that have `buckets` times as many buckets."""
        return replace(
            self,
            tokens=buckets * self.tokens,
            real_tokens=buckets * self.real_tokens,
            squares=buckets * self.squares,
            micro_batches=self.micro_batches // buckets,
        )

    @property
    def is_replicated(self) -> bool:
        """True if each rank holds all parameters."""
        return self.ranks == 1 or self.shard != "full"

    @property
    def step_tokens(self) -> float:
        """Number of tokens of a step over all ranks, without padding."""
        return self.real_tokens * self.micro_batches * self.ranks / self.context_parallel


def memory(setting: Setting) -> dict[str, float]:
    """Return the parts of one GPU's peak memory, in bytes."""
    model, p = setting.model, setting.model.parameters
    parts = 1 if setting.is_replicated else setting.shards
    whole = setting.is_replicated or setting.reshard == "step"
    if setting.is_replicated:
        has_sums = setting.micro_batches > 1 or setting.ranks > 1
    else:
        has_sums = setting.micro_batches > 1 and setting.reshard == "layer"
    fp8_activations = setting.fp8 and setting.recompute == "none"
    activations_per_token = (
        ACTIVATION_BYTES[setting.recompute, fp8_activations] * model.layers * model.hidden_size
    )
    return {
        "parameters (bf16)": 2 * p / parts,
        "masters and Adam's state (fp32)": 12 * p / _updating_ranks(setting),
        "sums of gradients (fp32)": 4 * p / parts * has_sums,
        "gathered parameters and gradients": _gathered_bytes(setting),
        "FP8 copies of weights": 2.0 * p * (setting.fp8 and whole),
        "activations": activations_per_token * setting.tokens / setting.context_parallel,
        "the rest": float(CONSTANT_BYTES),
    }


def _updating_ranks(setting: Setting) -> int:
    """Return the number of ranks that divide the optimizer's work among themselves."""
    if setting.is_replicated:
        return setting.ranks if setting.shard == "optimizer" else 1
    return setting.shards


def _gathered_bytes(setting: Setting) -> float:
    """Return the bytes of gathered parameters and gradients that are in memory at the same time."""
    p = setting.model.parameters
    if setting.is_replicated:
        return 0.0
    if setting.reshard == "step":
        return p * (2 + 4 * (setting.micro_batches > 1))
    return GATHERED_LAYERS * (2 + 1) * p / setting.model.layers


def seconds(setting: Setting) -> float:
    """Return the time of a step in seconds."""
    c = COEFFICIENTS
    billions = setting.model.parameters / 1e9
    ranks = setting.ranks if setting.is_replicated else setting.shards
    traffic = (ranks - 1) / ranks * billions
    micro_batch = _micro_batch_ms(setting, billions, traffic)
    step = micro_batch * setting.micro_batches + c["update"] * billions / _updating_ranks(setting)
    if setting.is_replicated:
        sent_bytes = 6 if setting.shard == "optimizer" else 8
        step += c["all_reduce"] * sent_bytes * traffic
    elif setting.reshard == "step":
        step += c["step_traffic"] * 6 * traffic
    return step / 1e3


def _micro_batch_ms(setting: Setting, billions: float, traffic: float) -> float:
    """Return the time of a micro-batch in ms. With `--reshard layer`, this includes traffic.

    Args:
        billions: number of parameters, in billions.
        traffic: number of parameters that a rank receives from other ranks, in billions.
    """
    c = COEFFICIENTS
    again = {"none": 1.0, "selective": c["selective"], "full": c["full"]}[setting.recompute]
    ms = _compute_ms(setting) * again
    held = setting.is_replicated or setting.reshard != "layer"
    if setting.micro_batches > 1 or (setting.is_replicated and setting.ranks > 1):
        ms += c["sums"] * billions / (1 if held else setting.shards)
    if not setting.captured:
        ms *= 1 + c["eager"]
    if not setting.is_replicated and setting.reshard == "layer":
        ms += c["layer_traffic"] * 8 * traffic
    if not setting.captured and setting.ranks > 1:
        launch = HOST_MS[setting.reshard, setting.fp8] * setting.model.layers * again
        ms = max(ms, launch)
    return ms


def _compute_ms(setting: Setting) -> float:
    """Return the time in ms that one rank computes on a micro-batch, without recomputation."""
    model, c = setting.model, COEFFICIENTS
    share = 1 / setting.context_parallel
    features = step_features(setting)
    per_token = (
        features["bf16"] * c["bf16"]
        + features["fp8"] * c["fp8"]
        + features["narrow"] * c["narrow"]
        + features["cast"] * c["cast"]
        + features["elementwise"] * c["elementwise"]
    )
    ours = setting.max_seqlen <= longest_of_our_attention(model.head_size)
    attention = features["attention"] * c["attention" if ours else "long_attention"]
    return (per_token + attention) * share + features["layer"] * c["layer"]


def step_features(setting: Setting) -> dict[str, float]:
    """Return the quantities on which the time of a micro-batch depends linearly.

    These quantities are TFLOP of matrix products and of attention, GB of activations that are cast
    to FP8, GB of hidden states, and the number of layers. The keys are keys of COEFFICIENTS.
    """
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
        "elementwise": model.layers * setting.tokens * d / 1e9,
        "layer": float(model.layers),
    }
