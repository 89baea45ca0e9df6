"""Command line of the trainer: a preset's name, then flags."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final, cast

import tyro

from schemas.models import ModelOptions
from schemas.option_help import with_flowing_help
from trainer.config.options import (
    ComputeOptions,
    DataOptions,
    OptimizerOptions,
    OutputOptions,
    TrainOptions,
)
from trainer.config.presets import PRESETS

_PROG: Final = "thdpack train"


def parse(arguments: Sequence[str]) -> TrainOptions:
    """Return the options of a command line: a preset's name, then flags.

    Raises:
        SystemExit: the command line asks for --help (code 0) or is wrong (code 2).
    """
    _check_repeated(arguments)
    for section in (ModelOptions, DataOptions, OptimizerOptions, ComputeOptions, OutputOptions):
        with_flowing_help(section)
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    description = (
        "Train an ESM-2 on a dataset that `thdpack preprocess` wrote. PRESET --help lists all "
        "options."
    )
    options: Any = tyro.extras.overridable_config_cli(
        dict(PRESETS), prog=_PROG, description=description, args=arguments, config=config
    )
    if not options.data.data:
        print(
            f"{_PROG}: --data is missing: add --data DATASET, the folder or URL that `thdpack "
            "preprocess` wrote",
            file=sys.stderr,
        )
        raise SystemExit(2)
    return cast(TrainOptions, options)


def _check_repeated(arguments: Sequence[str]) -> None:
    """Refuse an option that the command line has twice: tyro would silently ignore the first value.

    Raises:
        SystemExit: an option is repeated (code 2).
    """
    flags = [
        word.partition("=")[0].replace("_", "-") for word in arguments if word.startswith("--")
    ]
    repeated = next((flag for number, flag in enumerate(flags) if flag in flags[:number]), "")
    if repeated:
        print(
            f"{_PROG}: {repeated} is given more than once: remove all but one",
            file=sys.stderr,
        )
        raise SystemExit(2)
