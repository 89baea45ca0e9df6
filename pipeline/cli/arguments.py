"""What each subcommand is asked for, as tyro reads it from the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, Optional

import tyro

from pipeline.build.options import PreprocessOptions
from pipeline.cli.array_jobs import CommitOptions, RunTaskOptions
from pipeline.cli.stats import StatsOptions, with_json_file

INPUTS_HELP = """Files, folders, globs, URLs (s3://…, gs://…, https://…; folders and globs there too), @list for a file that names
one of these a line, or - for standard input. FASTA, plain or gz, bgz, zst, xz, bz2;
Parquet or Arrow with a sequence column."""
OUT_HELP = "Folder of the dataset, or a URL (s3://…, gs://…). It is made if missing; what is there stays valid until the new manifest replaces the old."


@dataclass(frozen=True, kw_only=True)
class PreprocessArguments(PreprocessOptions):
    __doc__ = PreprocessOptions.__doc__
    # how the command line spells two of them; the options themselves know nothing of tyro, which workers need not load

    inputs: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="INPUT", help=INPUTS_HELP)
    ]
    out: Annotated[str, tyro.conf.arg(metavar="DATASET", help=OUT_HELP)]


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyOptions:
    """Check a dataset: hashes, schema, every invariant of every bucket. One line for each thing that is wrong, exit 1.

    Example: thdpack verify data/uniref50 --deep
    """

    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """Folder or URL of the dataset."""
    deep: bool = False
    """Also read records/ and compare every record with the buckets it went to."""
    workers: Optional[int] = None  # noqa: UP045 (tyro loads typeguard, 0.1 s, to understand `int | None`)
    """Processes to use. Default: all cores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InspectOptions:
    """Look into a dataset: its summary, one bucket drawn with its sequences, or the fate of one record.

    Example: thdpack inspect data/uniref50 --record P69905
    """

    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """Folder or URL of the dataset."""
    split: str = "train"
    """Split that --bucket counts in."""
    bucket: Optional[int] = None  # noqa: UP045
    """Draw this bucket of the split, counted from 0."""
    record: Optional[str] = None  # noqa: UP045
    """Tell where the records with this id went, or why they did not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchReaderOptions:
    """Read a dataset as training would, without training: tokens/s, latency of a bucket, bytes read. For your own storage.

    Each bucket's tokens are copied into one buffer. Run it twice: the second time local files are in the page cache, and
    remote shards in --cache-dir. Example: thdpack bench-reader s3://bucket/uniref50 --world-size 8 --seconds 30
    """

    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """Folder or URL of the dataset."""
    split: str = "train"
    """Split to read."""
    seconds: float = 5.0
    """How long to read."""
    seed: int = 0
    """Of the order."""
    rank: int = 0
    """Rank to be."""
    world_size: int = 1
    """Ranks that share the dataset; this process reads what --rank would."""
    cache_dir: Optional[str] = None  # noqa: UP045
    """Folder for shards of a remote dataset. Default: $XDG_CACHE_HOME/thdpack; none for a local dataset."""
    cache_bytes: int = 32 << 30
    """Limit of all shards in --cache-dir."""
    prefetch: int = 4
    """Shards to fetch, verify and map ahead of those in use."""
    log_json: bool = False
    """One JSON line instead of text."""


class PlanTasksArguments(PreprocessArguments):
    """Cut a job into tasks that a scheduler runs, on machines that all see the dataset's folder; options as for preprocess.

    Then `thdpack run-task DATASET --plan PLAN --index N` for every task, those of stage map first, and `thdpack commit DATASET --plan PLAN`.
    docs/preprocess.sbatch does it all on Slurm. Example: thdpack plan-tasks uniref50.fasta --out data/uniref50
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """What a training run will need: memory by part, tokens/s, time and GPU-hours, and the flags that are fastest. Nothing is run.

    Example: thdpack plan --data data/uniref50 --model esm2-3b --gpus 8xH200
    """

    data: Annotated[str, tyro.conf.arg(metavar="DATASET")]
    """Folder or URL of the dataset."""
    model: str = "esm2-650m"
    """Preset: esm2-8m, -35m, -150m, -650m, -3b or -15b."""
    gpus: str = "8xH200"
    """Number and kind: H200, or H100 with 80 GB."""
    precision: Literal["bf16", "fp8-delayed"] = "bf16"
    """Of the layers' matrix products."""
    tokens: int = 0
    """Of the whole run; 0: the published one's (1.05e12, 15B 1.57e12)."""
    log_json: bool = False
    """JSON instead of text."""


_COMMANDS: dict[str, Callable[..., Any]] = {
    "preprocess": PreprocessArguments,
    "plan-tasks": PlanTasksArguments,
    "run-task": RunTaskOptions,
    "commit": CommitOptions,
    "verify": VerifyOptions,
    "inspect": InspectOptions,
    "stats": StatsOptions,
    "bench-reader": BenchReaderOptions,
    "plan": PlanOptions,
}


def parsed(arguments: list[str]) -> Any:
    """The options of the subcommand that was named.

    Raises:
        ValueError: an option has no value that it may have. SystemExit: tyro has explained what is wrong, or --help.
    """
    options = _read(arguments)
    if isinstance(options, PreprocessArguments):
        asked = PreprocessOptions(
            **{field.name: getattr(options, field.name) for field in fields(options)}
        )
        return (
            replace(asked, executor="slurm-array")
            if isinstance(options, PlanTasksArguments)
            else asked
        )
    return options


def _read(arguments: list[str]) -> Any:
    config = (tyro.conf.FlagCreatePairsOff,)
    if arguments[:1] == ["stats"]:
        arguments = with_json_file(arguments)
    if arguments and arguments[0] in _COMMANDS:  # without building the parsers of the others
        return tyro.cli(
            _COMMANDS[arguments[0]],
            prog=f"thdpack {arguments[0]}",
            args=arguments[1:],
            config=config,
        )
    description = "Turn protein FASTA into packed, tokenized Arrow shards, once, and check, inspect and read them."
    return tyro.extras.subcommand_cli_from_dict(
        _COMMANDS, prog="thdpack", description=description, args=arguments, config=config
    )
