"""The learning rate of each step."""

from __future__ import annotations

import math
from dataclasses import replace

from schemas.text.phrases import plural
from trainer.config import AUTO, OptimizerOptions, TrainOptions
from trainer.config.options import PUBLISHED_WARMUP


def with_warmup(options: TrainOptions) -> tuple[TrainOptions, str]:
    """Return the options with `--warmup-steps auto` resolved, and a note for the user. The note is
    "" if the user chose the warm-up, or if `auto` is the warm-up of the published runs.
    """
    optimizer = options.optimizer
    if optimizer.warmup_steps != AUTO:
        return options, ""
    steps = optimizer.warmup
    warmup = (
        f"warm-up of {plural(steps, 'step')} instead of {PUBLISHED_WARMUP:,}"
        if steps
        else "no warm-up"
    )
    note = (
        f"{warmup}, because the run has {plural(optimizer.steps, 'step')}; --warmup-steps overrides"
    )
    options = replace(options, optimizer=replace(optimizer, warmup_steps=steps))
    return options, note if steps < PUBLISHED_WARMUP else ""


def learning_rate(step: int, options: OptimizerOptions) -> float:
    """Return the learning rate of optimizer step `step`, counted from 0. Because this is a pure
    function, checkpoints need no scheduler state.

    In the warm-up the rate rises linearly, and reaches the peak at step `warmup`. All schedules
    later decay to final_fraction of the peak:

    | schedule | the decay begins | the decay ends |
    |---|---|---|
    | linear, cosine | after the warm-up | at step number `steps * decay_until` |
    | wsd | at step number `steps * (1 - decay_fraction)` | at step number `steps` |

    wsd (warm-up, stable, decay) decays linearly. Source: Hu et al., MiniCPM, 2024.
    """
    if step < options.warmup:
        return options.learning_rate * (step + 1) / (options.warmup + 1)
    if options.schedule == "wsd":
        begin, end = options.steps * (1 - options.decay_fraction), float(options.steps)
    else:
        begin, end = float(options.warmup), options.steps * options.decay_until
    done = min(max((step - begin) / max(end - begin, 1.0), 0.0), 1.0)
    left = 0.5 * (1 + math.cos(math.pi * done)) if options.schedule == "cosine" else 1 - done
    return options.learning_rate * (options.final_fraction + (1 - options.final_fraction) * left)
