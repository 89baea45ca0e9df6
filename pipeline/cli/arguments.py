"""Read the command line: the subcommand and its options."""

from __future__ import annotations

import difflib
from dataclasses import fields
from typing import Annotated, Any, Final, Union

import tyro

from pipeline.build.options import PreprocessOptions
from pipeline.cli.report_options import CardOptions, StatsOptions
from pipeline.cli.subcommand_options import (
    BenchReaderOptions,
    CommitOptions,
    InspectOptions,
    PlanOptions,
    PlanTasksArguments,
    PlanTasksOptions,
    PreprocessArguments,
    RunTaskOptions,
    TrainArguments,
    VerifyOptions,
)
from schemas.text.option_help import (
    InvalidOptionError,
    own_errors,
    refuse_foreign_options,
    refuse_unknown_options,
    suggest_choices,
    with_flowing_help,
)


class UsageError(Exception):
    """Arguments of a command are wrong or contradict each other. The exit code is 2."""


_COMMANDS: Final[dict[str, tuple[type[Any], str]]] = {
    "preprocess": (PreprocessArguments, "Build a dataset from protein sequences."),
    "verify": (VerifyOptions, "Check a dataset: hashes, and the rules of every bucket."),
    "inspect": (InspectOptions, "Show a dataset's summary, one bucket, or one record."),
    "stats": (StatsOptions, "Report on a dataset or raw sequences, or compare two."),
    "card": (CardOptions, "Describe a dataset for publication: Croissant, Hugging Face."),
    "plan": (PlanOptions, "Predict memory, time and the fastest flags of a training run."),
    "train": (TrainArguments, "Train an ESM-2 on a dataset. Needs the extra `train`."),
    "bench-reader": (BenchReaderOptions, "Measure how fast a dataset can be read."),
    "plan-tasks": (PlanTasksArguments, "Cut a build into tasks for a scheduler, such as Slurm."),
    "run-task": (RunTaskOptions, "Run one task of a planned build."),
    "commit": (CommitOptions, "Finish a planned build."),
}


_BUILD_OTHERS: Final = {
    **dict.fromkeys(("--output", "--output-dir", "--out-dir", "-o"), "use --out"),
    **dict.fromkeys(("--input", "--inputs", "-i"), "inputs need no option: write their names"),
    **dict.fromkeys(("--max-length", "--max-seq-length"), "use --max-seq-len"),
    **dict.fromkeys(("--num-workers", "--num-proc", "--threads", "-j"), "use --workers"),
    **dict.fromkeys(
        ("--valid-fraction", "--val-fraction", "--valid-split", "--validation-split"),
        "use --split train=0.99,valid=0.01, with the share of each split",
    ),
    **dict.fromkeys(
        ("--test-fraction", "--test-split", "--splits"),
        "use --split train=0.98,valid=0.01,test=0.01, with the share of each split",
    ),
    "--filter": "use --where, with an SQL expression, as in --where 'length >= 50'",
    **dict.fromkeys(("--bucket-size", "--tokens-per-bucket"), "use --capacity"),
}
_OTHERS: Final[dict[str, dict[str, str]]] = {
    "preprocess": _BUILD_OTHERS,
    "plan-tasks": _BUILD_OTHERS,
    "stats": dict.fromkeys(
        ("--output", "--out", "-o"), "use --html FILE, --json FILE or --csv FOLDER"
    ),
    "card": dict.fromkeys(("--output", "--output-dir", "-o"), "use --out"),
    "plan": {
        "--dataset": "use --data",
        "--preset": "use --model",
        "--num-gpus": "use --gpus, as in --gpus 8xH200",
        "--steps": "use --tokens, the number of steps × the number of tokens of a step; a plan "
        "prints both",
    },
}
"""For each subcommand: options of other programs, and the advice that an error prints."""


def parsed(arguments: list[str]) -> Any:
    """Return the options of the subcommand that the arguments name.

    Raises:
        UsageError: the subcommand is unknown, an option belongs to another program, or a value is
            not allowed.
        SystemExit: tyro has printed help or an error.
    """
    try:
        options = _read(arguments)
        if not isinstance(options, PreprocessArguments):
            return options
        values = {field.name: getattr(options, field.name) for field in fields(options)}
        preprocess = PreprocessOptions(**values)
        return (
            PlanTasksOptions(preprocess) if isinstance(options, PlanTasksArguments) else preprocess
        )
    except (InvalidOptionError, ValueError) as error:
        raise UsageError(str(error)) from error


def short_help() -> str:
    """Return the text that `thdpack` prints without arguments: the subcommands and an example."""
    width = max(map(len, _COMMANDS))
    lines = [f"  {name:<{width}}  {line}" for name, (_, line) in _COMMANDS.items()]
    return "\n".join(
        [
            "usage: thdpack COMMAND …",
            "",
            *lines,
            "",
            "Example: thdpack preprocess proteins.fasta --out data/proteins",
            "`thdpack COMMAND --help` explains a command.",
        ]
    )


def _read(arguments: list[str]) -> Any:
    config = (tyro.conf.FlagCreatePairsOff,)
    if arguments[:1] == ["stats"]:
        arguments = _with_json_file(arguments)
    if arguments and arguments[0] in _COMMANDS:
        # build only this subcommand's parser, which is quicker
        others = _OTHERS.get(arguments[0], {})
        refuse_foreign_options(arguments[1:], others, takes_files=True)
        name, options = arguments[0], with_flowing_help(_COMMANDS[arguments[0]][0])
        refuse_unknown_options(arguments[1:], options)
        suggest_choices(arguments[1:], options)
        given = {word.partition("=")[0] for word in arguments}
        if issubclass(options, PreprocessArguments) and not given & {"--out", "--help", "-h"}:
            raise UsageError("--out is missing: add --out DATASET, the dataset's folder or URL")
        with own_errors(*options.__mro__):
            found, left = tyro.cli(
                options,
                prog=f"thdpack {name}",
                args=arguments[1:],
                config=config,
                return_unknown_args=True,
            )
        if left:
            raise UsageError(f"too many arguments for {name}: remove {' '.join(left)}")
        return found
    if arguments and not arguments[0].startswith("-"):
        close = difflib.get_close_matches(arguments[0], _COMMANDS, n=1)
        meant = f"did you mean {close[0]}?" if close else f"the commands are {', '.join(_COMMANDS)}"
        raise UsageError(f"no command {arguments[0]}: {meant}")
    subcommands: Any = Union[  # noqa: UP007 (built from a list)
        tuple(
            Annotated[options, tyro.conf.subcommand(name, description=line)]
            for name, (options, line) in _COMMANDS.items()
        )
    ]
    description = (
        "Turn protein FASTA into packed, tokenized Arrow shards; verify, inspect and read them; "
        "train on them. `thdpack COMMAND --help` explains a command, `thdpack --version` prints "
        "the version."
    )
    return tyro.cli(
        subcommands, prog="thdpack", description=description, args=arguments, config=config
    )


def _with_json_file(arguments: list[str]) -> list[str]:
    """Add `-` (standard output) after a `--json` without a file, because tyro does not support
    options with an optional value."""
    completed = []
    for argument, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        completed.append(argument)
        if argument == "--json" and following.startswith("--"):
            completed.append("-")
    return completed
