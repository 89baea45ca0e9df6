"""Learning rate of each step: a pure function, so that checkpoints need no scheduler state."""

from __future__ import annotations

import math

from trainer.config import OptimizerOptions


def learning_rate(step: int, options: OptimizerOptions) -> float:
    """Return the learning rate of optimizer step `step`, counted from 0.

    The warm-up rises linearly and reaches the peak at step warmup_steps. All schedules then fall to
    final_fraction of the peak:

    | schedule | the fall begins | the fall ends |
    |---|---|---|
    | linear, cosine | after the warm-up | at step number `steps * decay_until` |
    | wsd | at step number `steps * (1 - decay_fraction)` | at the last step |

    wsd (warm-up, stable, decay) falls linearly. Source: Hu et al., MiniCPM, 2024.
    """
    if step < options.warmup_steps:
        return options.learning_rate * (step + 1) / (options.warmup_steps + 1)
    if options.schedule == "wsd":
        begin, end = options.steps * (1 - options.decay_fraction), float(options.steps)
    else:
        begin, end = float(options.warmup_steps), options.steps * options.decay_until
    done = min(max((step - begin) / max(end - begin, 1.0), 0.0), 1.0)
    left = 0.5 * (1 + math.cos(math.pi * done)) if options.schedule == "cosine" else 1 - done
    return options.learning_rate * (options.final_fraction + (1 - options.final_fraction) * left)
