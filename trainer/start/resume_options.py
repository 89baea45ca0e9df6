"""Rules for options that a user changes when a run resumes.

| changed option | effect |
|---|---|
| the model, --gelu, --init-from, --seed, --mask-probability | error: this needs a new run |
| --tokens-per-step, --buckets-per-step | error: this needs a new run |
| weights of datasets, --reweight, --optimizer | error: this needs a new run |
| steps, learning rate, schedule, betas, weight decay, clipping | accepted and logged at the start |
| --backend, --precision, --precision-layers, --quantized-init | accepted and logged at the start |
| --valid-split | error, unless the run is finished: losses of two splits cannot be compared |
| --generation | error, unless it names the generation that the run began with |
| URL of the dataset, cache, prefetch, outputs | accepted: results stay the same |
| number of ranks, parallelism, --recompute, --cuda-graph | accepted: only rounding differs |
"""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from schemas.models import ModelOptions
from schemas.text.phrases import plural
from trainer.config import AUTO, TrainOptions, flag
from trainer.config.presets import model_words

_FIXED: Final = ("seed", "mask_probability")
_OF_COMPUTING: Final = ("backend", "precision", "precision_layers", "quantized_init")


def resumed(options: TrainOptions, before: TrainOptions) -> TrainOptions:
    """Return the options of a resumed run: those of the command line, with the model and batch of
    the checkpoint. Without --steps and --epochs, the run keeps its number of steps, and without
    --learning-rate its learning rate.

    Args:
        options: options of the command line.
        before: options in the checkpoint.
    Raises:
        ValueError: the command line changes an option that needs a new run (see the table above).
    """
    model, data, out = before.model, before.data, options.output.out
    given, then = options.public().output.init_from, before.output.init_from
    if given not in ("", then) and not _is_same_folder(given, then):
        raise ValueError(_other_start(options.output.init_from, before.output.init_from, out))
    if options.model.gelu != model.gelu:
        raise ValueError(
            f"{out} holds a run with --gelu {model.gelu}, not {options.model.gelu}: choose "
            "another --out"
        )
    if model != options.model and not options.output.init_from:
        raise ValueError(
            f"{out} holds a run of another model, {model_words(model)} "
            f"({_differences(model, options.model)}): give the model of that run, or choose "
            "another --out"
        )
    for name in _FIXED:
        then, now = getattr(data, name), getattr(options.data, name)
        if then != now:
            raise ValueError(
                f"{out} holds a run with {flag(name)} {then}, not {now}: choose another --out"
            )
    optimizer_then, optimizer_now = before.optimizer.optimizer, options.optimizer.optimizer
    if optimizer_then != optimizer_now:
        raise ValueError(
            f"{out} holds a run with --optimizer {optimizer_then}, not {optimizer_now}: choose "
            "another --out"
        )
    batch = data.buckets_per_step
    per_step = f"{plural(batch, 'bucket')} per step"
    tokens = options.data.tokens_per_step
    if options.data.tokens_given and tokens != data.tokens_per_step:
        raise ValueError(
            f"{out} holds a run of {per_step}, which --tokens-per-step {tokens} "
            "cannot change: omit this option, or choose another --out"
        )
    if options.data.buckets_per_step not in (0, batch):
        raise ValueError(
            f"{out} holds a run of {per_step}, not {options.data.buckets_per_step}: "
            "choose another --out"
        )
    if not options.optimizer.steps_given and not options.optimizer.epochs:
        steps = before.optimizer.steps
        optimizer = replace(options.optimizer, steps=steps, steps_given=True)
        options = replace(options, optimizer=optimizer)
    if not options.optimizer.rate_given:
        rate = before.optimizer.learning_rate
        options = replace(options, optimizer=replace(options.optimizer, learning_rate=rate))
    output = replace(options.output, init_from=before.output.init_from)
    kept = replace(
        options.data,
        buckets_per_step=batch,
        tokens_per_step=data.tokens_per_step,
        tokens_given=data.tokens_given,
    )
    return replace(options, model=model, data=kept, output=output)


def _differences(before: ModelOptions, now: ModelOptions) -> str:
    """Return the options in which two models differ, with both values, in words."""
    asked = asdict(now)
    return "; ".join(
        f"{flag(name)} {value}, not {asked[name]}"
        for name, value in asdict(before).items()
        if value != asked[name]
    )


def check_valid_split(options: TrainOptions, before: TrainOptions, step: int) -> None:
    """Check that an unfinished run keeps the split of its validations.

    Args:
        step: number of steps that the run has done.
    Raises:
        ValueError: steps are left, and --valid-split differs.
    """
    now, then = options.output.valid_split, before.output.valid_split
    if now != then and step < options.optimizer.steps:
        raise ValueError(
            f"{options.output.out} holds an unfinished run with --valid-split {then}, not {now}: "
            f"finish the run first, and then repeat the command with --valid-split {now}"
        )


def _is_same_folder(one: str, other: str) -> bool:
    """Return whether two spellings of a path name the same folder."""
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def _other_start(given: str, then: str, out: str) -> str:
    """Return an error message for a --init-from that the run in `out` did not start from."""
    known = f", but from {then}" if then else ""
    if not Path(given).exists():
        return (
            f"--init-from is {given}, which does not exist. Also, {out} holds a run that did not "
            f"start from that folder{known}: correct --init-from, or omit it to resume that run. "
            "For a new run, choose another --out"
        )
    return f"{out} holds a run that did not start from {given}{known}: choose another --out"


def with_warmup_of(before: TrainOptions, options: TrainOptions, step: int) -> TrainOptions:
    """Return the options of a resumed run. If the command line sets no warm-up, keep the run's
    warm-up.

    A shorter warm-up would make the learning rate jump. Therefore the warm-up is shortened only if
    the user asks for this.

    Args:
        before: options in the checkpoint.
        options: options from `resumed`, with the number of steps.
        step: number of steps that the run has done.
    Raises:
        ValueError: steps are left, and the warm-up is too long for the number of steps on the
            command line.
    """
    optimizer, steps = options.optimizer, before.optimizer.warmup
    if optimizer.warmup_steps != AUTO:
        return options
    if step >= optimizer.steps:  # nothing is left to train, so no warm-up can be too long
        steps = 0
    try:
        return replace(options, optimizer=replace(optimizer, warmup_steps=steps))
    except ValueError:
        raise ValueError(
            f"{options.output.out} holds a run with a warm-up of {plural(steps, 'step')}, chosen "
            f"for --steps {before.optimizer.steps} and too long for --steps {optimizer.steps}: "
            f"give more --steps, or change the warm-up with --warmup-steps {optimizer.steps // 10}"
        ) from None


def changes(options: TrainOptions, before: TrainOptions) -> str:
    """Return the changed options that a resumed run logs, in words; "" if there are none. `auto`
    must be resolved in `options` and in `before`.
    """
    now, then = asdict(options.optimizer), asdict(before.optimizer)
    for name in _OF_COMPUTING:
        now[name], then[name] = getattr(options.compute, name), getattr(before.compute, name)
    return ", ".join(
        f"{flag(name)} {then[name]} → {value}"
        for name, value in now.items()
        if value != then[name] and not name.endswith("_given")
    )
