"""The `thdpack` command. Imports what a subcommand needs when it runs, so that --help is quick."""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, Literal, Optional

import tyro

from pipeline.array_commands import CommitOptions, RunTaskOptions, print_built, run_array_command
from pipeline.interrupt import interrupt
from pipeline.options import PreprocessOptions
from pipeline.report.arguments import StatsOptions, run_stats, with_json_file
from schemas.errors import ThdpackError
from schemas.redact import without_credentials

INPUTS_HELP = """Files, folders, globs, URLs (s3://…, gs://…, https://…; folders and globs there too), @list for a file that names
one of these a line, or - for standard input. FASTA, plain or gz, bgz, zst, xz, bz2;
Parquet or Arrow with a sequence column."""
OUT_HELP = "Folder of the dataset, or a URL (s3://…, gs://…). It is made if missing; what is there stays valid until the new manifest replaces the old."


@dataclass(frozen=True, kw_only=True)
class PreprocessArguments(PreprocessOptions):
    __doc__ = PreprocessOptions.__doc__
    # how the command line spells two of them; the options themselves know nothing of tyro, which workers need not load

    inputs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="INPUT", help=INPUTS_HELP)]
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
    """Limit of all files in --cache-dir."""
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


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 an error that the message explains, 2 wrong usage, 130 interrupted."""
    code = 1
    # runs after every other exit handler: taking the interpreter apart would take 0.2 s more, a tenth of a short run
    atexit.register(lambda: os._exit(code))
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background jobs ignore it
        signal.signal(signal.SIGINT, interrupt)
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except ThdpackError as error:
        print(f"thdpack: {error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("thdpack: interrupted; nothing is broken, the same command goes on from here", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except Exception:  # a bug, of ours or of what we use; whatever it says holds no credentials
        print(without_credentials(traceback.format_exc()), file=sys.stderr)
    except SystemExit as leaving:  # tyro's --help and usage errors
        code = leaving.code if isinstance(leaving.code, int) else 0
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    if arguments[:1] in (["preprocess"], ["verify"]) and not {"-h", "--help", "ray"} & set(arguments):
        from pipeline.executors import preload

        preload(*(["pipeline.objects", "s3fs"] if any(argument.startswith("s3://") for argument in arguments) else []))
    if arguments == ["--version"]:
        from schemas import __version__

        print(f"thdpack {__version__}")
        return 0
    try:
        options = _parsed(arguments)
        if isinstance(options, PreprocessArguments):
            asked = PreprocessOptions(**{field.name: getattr(options, field.name) for field in fields(options)})
            options = replace(asked, executor="slurm-array") if isinstance(options, PlanTasksArguments) else asked
    except ValueError as error:
        print(f"thdpack: {error}", file=sys.stderr)
        return 2
    if isinstance(options, PreprocessOptions):
        return _preprocess(options)
    if isinstance(options, RunTaskOptions | CommitOptions):
        return run_array_command(options)
    if isinstance(options, VerifyOptions):
        return _verify(options)
    if isinstance(options, StatsOptions):
        return run_stats(options)
    if isinstance(options, BenchReaderOptions):
        return _bench_reader(options)
    if isinstance(options, PlanOptions):
        return _plan(options)
    return _inspect(options)


def _parsed(arguments: list[str]) -> Any:
    """The options of the subcommand that was named."""
    config = (tyro.conf.FlagCreatePairsOff,)
    if arguments[:1] == ["stats"]:
        arguments = with_json_file(arguments)
    if arguments and arguments[0] in _COMMANDS:  # without building the parsers of the others
        return tyro.cli(_COMMANDS[arguments[0]], prog=f"thdpack {arguments[0]}", args=arguments[1:], config=config)
    description = "Turn protein FASTA into packed, tokenized Arrow shards, once, and check, inspect and read them."
    return tyro.extras.subcommand_cli_from_dict(_COMMANDS, prog="thdpack", description=description, args=arguments, config=config)


def _plan(options: PlanOptions) -> int:
    from pipeline.training_plan import run_plan

    try:
        run_plan(options.data, options.model, options.gpus, precision=options.precision, tokens=options.tokens, as_json=options.log_json)
    except ValueError as error:
        print(f"thdpack: {error}", file=sys.stderr)
        return 2
    return 0


def _preprocess(options: PreprocessOptions) -> int:
    if not options.inputs:
        print("thdpack: no input given: name files, folders, globs, URLs, or - for standard input", file=sys.stderr)
        return 2
    if options.dry_run:
        return _dry_run(options)
    if options.executor == "slurm-array":
        return run_array_command(options)
    started = time.perf_counter()
    if options.ray_address is not None:
        from pipeline.ray_executor import join

        join(options.ray_address)
    from pipeline.build import build
    from pipeline.progress import reporter

    with reporter(as_json=options.log_json) as report:
        built = build(options, report)
    print_built(built, options.out, as_json=options.log_json, seconds=time.perf_counter() - started)
    return 0


def _dry_run(options: PreprocessOptions) -> int:
    from pipeline.plan import plan

    if "-" in options.inputs:
        print("thdpack: --dry-run cannot look at standard input without using it up", file=sys.stderr)
        return 2
    planned = plan(options)
    for source in planned.sources:
        print(f"{source.bytes:>16,} bytes  {source.format}, {source.compression}  {without_credentials(source.url)}")
    for name in planned.passed_over:
        print(f"     passed over  {without_credentials(name)}")
    print(f"would read {planned.input_bytes:,} bytes in {len(planned.ranges)} tasks, into {planned.partitions} partitions")
    print(
        f"would need about {1.1 * planned.fasta_bytes / 1e6:,.1f} MB in {without_credentials(options.out)} for the dataset and as much again while it is built"
    )
    return 0


def _verify(options: VerifyOptions) -> int:
    from pipeline.verify_dataset import verify_dataset

    problems = verify_dataset(options.dataset, deep=options.deep, workers=options.workers)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{without_credentials(options.dataset)}: verified, nothing wrong")
    return 1 if problems else 0


def _bench_reader(options: BenchReaderOptions) -> int:
    from pipeline.bench_reader import bench_reader
    from pipeline.reader import ShardReader

    started = time.perf_counter()
    try:
        reader = ShardReader(
            options.dataset,
            options.split,
            seed=options.seed,
            rank=options.rank,
            world_size=options.world_size,
            cache_dir=options.cache_dir,
            cache_bytes=options.cache_bytes,
            prefetch=options.prefetch,
        )
    except ValueError as error:
        print(f"thdpack: {error}", file=sys.stderr)
        return 2
    with reader:
        measured = bench_reader(reader, options.seconds, started)
    if options.log_json:
        print(json.dumps({"event": "bench-reader", "dataset": without_credentials(options.dataset), **asdict(measured)}))
        return 0
    for name, value in measured.lines():
        print(f"{name:>16}  {value}")
    return 0


def _inspect(options: InspectOptions) -> int:
    from pipeline.inspect import show_bucket, show_record, show_summary

    dataset = options.dataset
    if options.bucket is not None:
        show_bucket(dataset, options.split, options.bucket)
    elif options.record is not None:
        show_record(dataset, options.record)
    else:
        show_summary(dataset)
    return 0
