"""Presets: the shapes and hyperparameters of the published ESM-2 models, and a tiny model.

Weight decay on matrices only is our choice; the rest is from Lin et al., Science 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from schemas.models import ESM2_MODELS, ModelOptions
from trainer.config.options import DataOptions, OptimizerOptions, OutputOptions, TrainOptions


def _preset(
    name: str, model: ModelOptions, optimizer: OptimizerOptions | None = None
) -> TrainOptions:
    return TrainOptions(
        model=model,
        optimizer=optimizer or OptimizerOptions(),
        output=OutputOptions(out=f"runs/{name}"),
    )


def _tiny() -> TrainOptions:
    base = _preset(
        "esm2-tiny",
        ModelOptions(layers=2, hidden_size=64, heads=4, ffn_size=256),
        OptimizerOptions(steps=100, warmup_steps=10, learning_rate=4e-3),
    )
    return replace(
        base,
        data=DataOptions(tokens_per_step=16_384),
        output=replace(base.output, validate_every=50, checkpoint_every=50),
    )


def _published(name: str) -> tuple[str, TrainOptions]:
    model = ESM2_MODELS[name]
    shape = f"{model.layers} layers of {model.hidden_size:,}"
    if name == "esm2-15b":
        base = _preset(name, model, OptimizerOptions(learning_rate=1.6e-4, weight_decay=0.1))
        return shape, replace(base, data=DataOptions(tokens_per_step=3_145_728))
    return shape, _preset(name, model)


PRESETS: Final[Mapping[str, tuple[str, TrainOptions]]] = {
    "esm2-tiny": ("2 layers of 64, to try the trainer on a CPU", _tiny()),
    **{name: _published(name) for name in ESM2_MODELS},
}
"""Name → (description, options)."""
