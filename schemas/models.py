"""ESM-2 models, by preset: their shapes and their published training runs.

The trainer builds and trains these models. Plans and reports use the shapes to compute costs.
Source: Lin et al., Science 2023 (tables S1 and S2 of its supplement).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from schemas.text.option_checks import check_range

Gelu = Literal["erf", "tanh"]
Recompute = Literal["none", "selective", "full"]
"""Values of --recompute, which selects the activations that the backward pass computes again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelOptions:
    """Shape of the model."""

    layers: int = 6
    """Number of transformer layers."""
    hidden_size: int = 320
    """Width of the residual stream."""
    heads: int = 20
    """Number of attention heads. --hidden-size must be an even multiple of this number."""
    ffn_size: int = 1280
    """Width of the feed-forward network."""
    gelu: Gelu = "erf"
    """Form of GELU. `erf` is exact, as in ESM-2 and Hugging Face. `tanh` is an approximation and a
    little faster."""

    def __post_init__(self) -> None:
        check_range(self, "layers", "hidden_size", "heads", "ffn_size", least=1)
        if self.hidden_size % self.heads or self.head_size % 2:
            raise ValueError(
                f"--hidden-size is {self.hidden_size}, not an even multiple of --heads "
                f"{self.heads}: rotary embeddings rotate pairs of values, so the head size must be "
                "even"
            )

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.heads

    @property
    def parameters(self) -> int:
        """Number of trained parameters, without the padding of the vocabulary."""
        d, f = self.hidden_size, self.ffn_size
        return (
            self.layers * (4 * d * d + 2 * d * f + 9 * d + f) + 33 * d + 2 * d + d * d + 3 * d + 33
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedRun:
    """The published training run of a model. `learning_rate` is the peak learning rate."""

    steps: int = 500_000
    tokens_per_step: int = 2_097_152
    learning_rate: float = 4e-4
    weight_decay: float = 0.01


MOST_EPOCHS: Final = 200
"""Number of epochs above which a warning is printed. The published run is about 60 epochs of
UniRef50."""
FEW_EPOCHS: Final = 20
"""Number of epochs that the warning proposes. By default, a run from published weights has at most
this number of epochs."""


def longest_of_our_attention(head_size: int) -> int:
    """Return the longest sequence length, in tokens, for which our attention kernel is used.

    Only backend te (Transformer Engine) uses our kernel. Up to this length our kernel is faster
    than cuDNN's kernel. Longer sequences use cuDNN's kernel. benchmarks/training/attention.py
    measures both kernels.
    """
    return 2048 if head_size <= 64 else 1024 if head_size <= 128 else 0


def check_length_multiple(data: str, length_multiple: int) -> None:
    """Refuse to train on a dataset whose sequences are padded.

    Raises:
        ValueError: the dataset was built with --length-multiple.
    """
    if length_multiple > 1:
        raise ValueError(
            f"{data} was built with --length-multiple {length_multiple}, so its sequences contain "
            f"padding, and tokens would attend to padding: "
            "build the dataset again without this option"
        )


ESM2_MODELS: Final[Mapping[str, ModelOptions]] = {
    "esm2-8m": ModelOptions(layers=6, hidden_size=320, heads=20, ffn_size=1280),
    "esm2-35m": ModelOptions(layers=12, hidden_size=480, heads=20, ffn_size=1920),
    "esm2-150m": ModelOptions(layers=30, hidden_size=640, heads=20, ffn_size=2560),
    "esm2-650m": ModelOptions(layers=33, hidden_size=1280, heads=20, ffn_size=5120),
    "esm2-3b": ModelOptions(layers=36, hidden_size=2560, heads=40, ffn_size=10240),
    "esm2-15b": ModelOptions(layers=48, hidden_size=5120, heads=40, ffn_size=20480),
}
"""Shapes of the published models, by preset."""

_PUBLISHED_NAMES: Final[Mapping[str, str]] = {
    "esm2_t6_8m_ur50d": "esm2-8m",
    "esm2_t12_35m_ur50d": "esm2-35m",
    "esm2_t30_150m_ur50d": "esm2-150m",
    "esm2_t33_650m_ur50d": "esm2-650m",
    "esm2_t36_3b_ur50d": "esm2-3b",
    "esm2_t48_15b_ur50d": "esm2-15b",
}
"""Preset of each published model, by the published name in lower case."""


def preset_hint(word: str, presets: Iterable[str]) -> str:
    """Return a hint for a word that is not a preset: the most similar preset, or all presets."""
    presets = list(presets)
    published = _PUBLISHED_NAMES.get(word.rpartition("/")[2].lower())
    if published is not None:
        return f"its preset is {published} (--init-from FOLDER starts from published weights)"
    close = difflib.get_close_matches(word.lower().replace("_", "-"), presets, n=1)
    return f"did you mean {close[0]}?" if close else f"the presets are {', '.join(presets)}"


PUBLISHED_RUNS: Final[Mapping[str, PublishedRun]] = {
    **dict.fromkeys(ESM2_MODELS, PublishedRun()),
    "esm2-15b": PublishedRun(tokens_per_step=3_145_728, learning_rate=1.6e-4, weight_decay=0.1),
}
"""Published training run of each model in ESM2_MODELS."""
