"""Command line of the trainer: a preset's name, then flags."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NoReturn

import tyro

from schemas.models import ModelOptions, preset_hint
from schemas.text.option_help import (
    InvalidOptionError,
    own_errors,
    refuse_foreign_options,
    suggest_choices,
    with_flowing_help,
)
from schemas.text.option_words import check_words, one_line_errors
from trainer.config.compute_options import ComputeOptions
from trainer.config.options import (
    ALIASES,
    MUON_RATE,
    DataOptions,
    OptimizerOptions,
    OutputOptions,
    TrainOptions,
)
from trainer.config.other_trainers import OTHERS
from trainer.config.presets import PRESETS

_PROG: Final = "thdpack train"
_SECTIONS: Final = (ModelOptions, DataOptions, OptimizerOptions, ComputeOptions, OutputOptions)


def parse(arguments: Sequence[str]) -> TrainOptions:
    """Return the options of a command line: a preset's name, then flags.

    Raises:
        SystemExit: the command line asks for --help (code 0) or is wrong (code 2).
    """
    preset, words = (arguments[0], list(arguments[1:])) if arguments else ("", [])
    if preset not in PRESETS:
        _show_presets(preset)
    flags = [word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]
    flags = [ALIASES.get(flag, flag) for flag in flags]
    for section in _SECTIONS:
        with_flowing_help(section)
    _check_flags(preset, words)
    description, default = PRESETS[preset]
    try:
        with own_errors(*_SECTIONS), one_line_errors():
            options = tyro.cli(
                TrainOptions,
                default=default,
                prog=f"{_PROG} {preset}",
                description=f"Train an ESM-2 of {description}.",
                args=words,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
            )
    except InvalidOptionError as error:
        _refuse(_as_typed(str(error), words))
    if not options.data.data:
        _refuse(
            "--data is missing: add --data DATASET, the folder or URL that `thdpack preprocess` "
            "wrote"
        )
    if "--tokens-per-step" in flags and options.data.buckets_per_step:
        _refuse(
            "--tokens-per-step and --buckets-per-step both set the batch: give only one of them"
        )
    if options.optimizer.epochs and "--steps" in flags:
        _refuse("--epochs and --steps both set the length of the run: give only one of them")
    if options.optimizer.epochs and options.data.reweight:
        _refuse("--reweight changes the length of an epoch: use --steps instead of --epochs")
    optimizer = replace(
        options.optimizer,
        steps_given="--steps" in flags,
        rate_given="--learning-rate" in flags,
    )
    if optimizer.optimizer == "muon" and not optimizer.rate_given:
        optimizer = replace(optimizer, learning_rate=MUON_RATE * optimizer.learning_rate)
    return replace(
        options,
        data=replace(options.data, tokens_given="--tokens-per-step" in flags),
        optimizer=optimizer,
    )


def _show_presets(word: str) -> NoReturn:
    """Print the list of presets if the first word is -h or --help. Otherwise print an error.

    Raises:
        SystemExit: code 0 for -h and --help, else 2.
    """
    if not word:
        _refuse(f"PRESET is missing: name a model, which is one of {', '.join(PRESETS)}")
    if word not in ("-h", "--help"):
        if word.startswith("-"):
            _refuse(f"a preset comes before {word}: {', '.join(PRESETS)}")
        _refuse(f"no preset {word}: {preset_hint(word, PRESETS)}")
    print(f"usage: {_PROG} PRESET --data DATASET [OPTIONS]\n")
    print("Train an ESM-2 on a dataset that `thdpack preprocess` wrote.\n\npresets:")
    for name, (description, _) in PRESETS.items():
        print(f"  {name:<10} {description}")
    print(f"\n`{_PROG} PRESET --help` lists all options.")
    raise SystemExit(0)


def _as_typed(text: str, words: Sequence[str]) -> str:
    """Return an error message that begins with the option as the user typed it, such as --lr."""
    for typed, ours in ALIASES.items():
        if text.startswith(f"{ours} ") and any(word.partition("=")[0] == typed for word in words):
            return text.replace(ours, typed, 1)
    return text


def _check_flags(preset: str, words: Sequence[str]) -> None:
    """Refuse unknown flags, flags of other trainers, missing or incomplete values (such as `fp8`
    for --precision), words that are not options, and options that are given twice.

    Raises:
        SystemExit: the command line has such a word (code 2).
    """
    try:
        refuse_foreign_options(words, OTHERS, takes_files=False)
        check_words(words, *_SECTIONS, prog=f"{_PROG} {preset}", aliases=ALIASES)
        suggest_choices(words, *_SECTIONS)
    except InvalidOptionError as error:
        _refuse(str(error))


def _refuse(text: str) -> NoReturn:
    print(f"{_PROG}: {text}", file=sys.stderr)
    raise SystemExit(2)
