"""Read the command line: the subcommand and its options."""

from __future__ import annotations

import difflib
import os
import re
from typing import Annotated, Any, Final, Union

import tyro

from pipeline.build.options import PreprocessOptions
from pipeline.cli.generations.options import (
    AppendArguments,
    CompactArguments,
    GcOptions,
    GenerationsOptions,
    WatchArguments,
)
from pipeline.cli.options.build_options import (
    GROUPS,
    BuildArguments,
    PlanTasksArguments,
    PreprocessArguments,
)
from pipeline.cli.options.default_checks import default_checks
from pipeline.cli.options.report_options import CardOptions, PushOptions, StatsOptions
from pipeline.cli.options.subcommand_options import (
    BenchReaderOptions,
    CommitOptions,
    EmbedArguments,
    InspectOptions,
    PlanOptions,
    PlanTasksOptions,
    RunTaskOptions,
    ScoreArguments,
    TrainArguments,
    VerifyOptions,
)
from schemas.text.option_help import (
    InvalidOptionError,
    own_errors,
    refuse_foreign_options,
    suggest_choices,
    with_flowing_help,
)
from schemas.text.option_words import check_words, one_line_errors, unexpanded


class UsageError(Exception):
    """Arguments of a command are wrong or contradict each other. The exit code is 2."""


NO_INPUT: Final = "no input given: name files, folders, globs, URLs, or - for standard input"


class UnknownCommandError(UsageError):
    """The first word of the command line is not a command."""


_COMMANDS: Final[dict[str, tuple[type[Any], str]]] = {
    "preprocess": (PreprocessArguments, "Build a dataset from protein sequences."),
    "append": (AppendArguments, "Add records to a dataset, as a new generation."),
    "watch": (WatchArguments, "Append the files of an inbox to a dataset, as a service."),
    "generations": (GenerationsOptions, "List the generations of a dataset."),
    "compact": (CompactArguments, "Rewrite a dataset that grew as one build."),
    "gc": (GcOptions, "Remove files that no kept generation needs."),
    "verify": (VerifyOptions, "Check a dataset: hashes, and the rules of every bucket."),
    "inspect": (InspectOptions, "Show a dataset's summary, one bucket, or one record."),
    "stats": (StatsOptions, "Report on a dataset or raw sequences, or compare two."),
    "card": (CardOptions, "Describe a dataset for publication: Croissant, Hugging Face."),
    "push": (PushOptions, "Upload a dataset to the Hugging Face Hub. Needs the extra `hf`."),
    "plan": (PlanOptions, "Predict memory, time and the fastest flags of a training run."),
    "train": (TrainArguments, "Train an ESM-2 on a dataset. Needs the extra `train`."),
    "embed": (EmbedArguments, "Compute embeddings with a trained model. Needs `train`, too."),
    "score": (ScoreArguments, "Score sequences or mutants with a model. Needs `train`, too."),
    "bench-reader": (BenchReaderOptions, "Measure how fast a dataset can be read."),
    "plan-tasks": (PlanTasksArguments, "Divide a build into tasks for a scheduler, such as Slurm."),
    "run-task": (RunTaskOptions, "Run one task of a planned build."),
    "commit": (CommitOptions, "Finish a planned build."),
}


_CONFIG: Final = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
_SHARE: Final = re.compile(r",?(train|valid|test)=")


_OTHER_COMMANDS: Final = {
    "retire": "`thdpack append DATASET --retire FILE`",
    **dict.fromkeys(("validate", "check"), "`thdpack verify DATASET`"),
    **dict.fromkeys(("info", "show"), "`thdpack inspect DATASET`"),
    **dict.fromkeys(("upload", "publish"), "`thdpack push DATASET hf://datasets/USER/NAME`"),
    "build": "`thdpack preprocess INPUT --out DATASET`",
    "merge": "`thdpack append DATASET INPUT` to add records to a dataset, and `thdpack compact` to "
    "rewrite a dataset that grew as one build",
}
"""Words that users try as a command, and the advice that an error prints."""


def parsed(arguments: list[str]) -> Any:
    """Return the options of the subcommand that the arguments name.

    Raises:
        UnknownCommandError: the first word is not a subcommand.
        UsageError: an option or argument is unknown or missing, or a value is not allowed.
        SystemExit: tyro has printed help.
    """
    try:
        options = _read(arguments)
        if not isinstance(options, BuildArguments):
            return options
        preprocess = options.options()
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
    if arguments[:1] == ["stats"]:
        arguments = _with_json_file(arguments)
    word = arguments[0]
    if word in _COMMANDS:
        return _read_options(word, arguments[1:])
    if word not in ("-h", "--help") and not word.startswith("--tyro-"):
        raise UnknownCommandError(_not_a_command(arguments))
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
        subcommands, prog="thdpack", description=description, args=arguments, config=_CONFIG
    )


def _read_options(name: str, words: list[str]) -> Any:
    """Return the options of a subcommand. To save time, build only the parser of this subcommand.

    Raises:
        InvalidOptionError: an option or argument is missing or wrong.
    """
    from pipeline.cli.options.foreign_options import FOREIGN_OPTIONS  # not needed by --help

    own = words[: words.index("--")] if "--" in words else words
    refuse_foreign_options(own, FOREIGN_OPTIONS.get(name, {}), takes_files=True)
    options = _COMMANDS[name][0]
    sections = GROUPS.get(options, [options])
    for section in sections:
        with_flowing_help(section, texts_of=PreprocessOptions if len(sections) > 1 else section)
    _refuse_split_words(own)
    _refuse_unexpanded_inputs(own)
    check_words(words, *sections, prog=f"thdpack {name}")
    _refuse_slurm_executor(own)
    suggest_choices(own, *sections)
    with default_checks(), own_errors(*options.__mro__), one_line_errors():
        return tyro.cli(options, prog=f"thdpack {name}", args=words, config=_CONFIG)


def _refuse_slurm_executor(words: list[str]) -> None:
    """Refuse `--executor slurm`, because a build runs on Slurm as array jobs.

    Raises:
        InvalidOptionError: the words hold this option.
    """
    pairs = zip(words, words[1:], strict=False)
    if "--executor=slurm" in words or ("--executor", "slurm") in pairs:
        raise InvalidOptionError(
            "--executor is 'slurm', expected processes or ray: on Slurm, use `thdpack plan-tasks`, "
            "which divides a build into array jobs; deploy/slurm/preprocess.sbatch runs all of them"
        )


def _refuse_split_words(words: list[str]) -> None:
    """Refuse blanks between the shares of --split, as in `--split train=0.9 valid=0.1`.

    Raises:
        InvalidOptionError: words after --split hold more shares.
    """
    for index, word in enumerate(words):
        begin = index + 1 if word == "--split" else index
        if word != "--split" and not word.startswith("--split="):
            continue
        end = begin + 1
        while end < len(words) and _SHARE.match(words[end]):
            end += 1
        if end > begin + 1:
            shares = ",".join(word.strip(",") for word in words[begin:end])
            shares = shares.removeprefix("--split=")
            raise InvalidOptionError(
                f"--split has blanks between its shares: write commas, as in --split {shares}"
            )


def _refuse_unexpanded_inputs(words: list[str]) -> None:
    """Refuse arguments that begin with ~/ because the shell has not expanded them, unless a file
    has such a name. `check_words` refuses such values of options.

    Raises:
        InvalidOptionError: there is such a word.
    """
    for previous, word in zip(["", *words], words, strict=False):
        is_value = previous.startswith("--") and "=" not in previous
        if word.startswith("~/") and not is_value and not os.path.lexists(word):
            raise InvalidOptionError(unexpanded(word))


def _not_a_command(arguments: list[str]) -> str:
    """Return the error message for a first word that is not a command."""
    word = arguments[0]
    if word in ("-v", "version"):
        return f"no {'option' if word.startswith('-') else 'command'} {word}: write --version"
    if word in _OTHER_COMMANDS:
        return f"no command {word}: use {_OTHER_COMMANDS[word]}"
    names = {name.lstrip("-"): name for name in (*_COMMANDS, "help", "--help", "--version")}
    close = difflib.get_close_matches(word.lstrip("-"), names, n=1, cutoff=0.7)
    kind = "option" if word.startswith("-") else "command"
    if close:
        return f"no {kind} {word}: did you mean {names[close[0]]}?"
    if word.startswith("-"):
        return f"a command comes before {word}: `thdpack help` lists the commands"
    return f"no command {word}: the commands are {', '.join(_COMMANDS)}"


def _with_json_file(arguments: list[str]) -> list[str]:
    """Add `-` (standard output) after a `--json` without a file, because tyro does not support
    options with an optional value."""
    completed = []
    for argument, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        completed.append(argument)
        if argument == "--json" and following.startswith("--"):
            completed.append("-")
    return completed
