"""Presets: the published ESM-2 models with the options of their training, and a tiny model.

The options are from Lin et al., Science 2023. The only difference is that we apply weight decay to
matrices only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Final

from schemas.models import ESM2_MODELS, PUBLISHED_RUNS, ModelOptions
from schemas.text.option_checks import flag
from trainer.config.options import DataOptions, OptimizerOptions, OutputOptions, TrainOptions


def _tiny() -> TrainOptions:
    return TrainOptions(
        model=ModelOptions(layers=2, hidden_size=64, heads=4, ffn_size=256),
        data=DataOptions(tokens_per_step=16_384),
        # with 4e-3, the loss jumped from 2.9 to above 5 in three of five seeds
        optimizer=OptimizerOptions(steps=100, learning_rate=2e-3),
        output=OutputOptions(out="runs/esm2-tiny", validate_every=50, checkpoint_every=50),
    )


def _published(name: str) -> tuple[str, TrainOptions]:
    model, run = ESM2_MODELS[name], PUBLISHED_RUNS[name]
    return f"{model.layers} layers of {model.hidden_size:,}", TrainOptions(
        model=model,
        data=DataOptions(tokens_per_step=run.tokens_per_step),
        optimizer=OptimizerOptions(
            steps=run.steps, learning_rate=run.learning_rate, weight_decay=run.weight_decay
        ),
        output=OutputOptions(out=f"runs/{name}"),
    )


PRESETS: Final[Mapping[str, tuple[str, TrainOptions]]] = {
    "esm2-tiny": ("2 layers, hidden size 64, to try the trainer on a CPU", _tiny()),
    **{name: _published(name) for name in ESM2_MODELS},
}
"""Description and options of each preset, by name."""


def model_words(model: ModelOptions) -> str:
    """Return the words that select a model on the command line: the name of a preset, or flags that
    give the model's shape.
    """
    for name, (_, options) in PRESETS.items():
        if replace(options.model, gelu=model.gelu) == model:
            return name
    return " ".join(
        f"{flag(field.name)} {getattr(model, field.name)}"
        for field in fields(model)
        if field.name != "gelu"
    )
