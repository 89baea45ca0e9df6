"""The `thdpack` command. Imports what a subcommand needs when it runs, so that --help is quick."""

from __future__ import annotations

import atexit
import errno
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from pipeline.storage.interrupt import interrupt
from schemas.errors import BuildError, ThdpackError
from schemas.redact import without_credentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.build.options import PreprocessOptions
    from pipeline.cli.arguments import (
        BenchReaderOptions,
        InspectOptions,
        PlanOptions,
        VerifyOptions,
    )

_BROKEN_PIPE: Final = 141
"""Exit code of a command whose reader went away: 128 + SIGPIPE, as shells have it."""

_FEWEST_FILES: Final = 64
"""A build of a few workers opens about twenty at once."""


def main() -> None:
    """Handle signals, run the command of this process, and exit with its code."""
    code = 1
    # runs after every other exit handler: taking the interpreter apart would take 0.2 s more, a tenth of a short run
    atexit.register(lambda: os._exit(code))
    signal.signal(signal.SIGTERM, interrupt)
    if (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):  # a shell's background jobs ignore it
        signal.signal(signal.SIGINT, interrupt)
    code = run_command(sys.argv[1:])
    if code == _BROKEN_PIPE:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


def run_command(arguments: Sequence[str]) -> int:
    """Run a command, print its errors, and return its exit code.

    Exit codes: 0 done, 1 an error that the message explains, 2 wrong usage, 130 interrupted,
    141 the reader of standard output went away.
    """
    try:
        code = _run(list(arguments))
        sys.stdout.flush()
        return code
    except ThdpackError as error:
        print(f"thdpack: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "thdpack: interrupted; nothing is broken, the same command goes on from here",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        return _BROKEN_PIPE
    except (
        Exception
    ) as error:  # a bug, of ours or of what we use; whatever it says holds no credentials
        if _lacks_files(error):
            print(f"thdpack: {_too_few_files()}", file=sys.stderr)
            return 1
        print(without_credentials(traceback.format_exc()), file=sys.stderr)
        return 1
    except SystemExit as leaving:  # tyro's --help and usage errors
        return leaving.code if isinstance(leaving.code, int) else 0


def _lacks_files(error: BaseException | None) -> bool:
    """Whether an error comes of the limit of open files."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__ or error.__context__
    return False


def _too_few_files() -> str:
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"too many open files: this process may have {most}; allow more, such as `ulimit -n 1024`, and run the same command"


def _allow_files() -> None:
    """Before there are workers, whose tracebacks nobody could catch: see that files can be opened.

    Raises:
        BuildError: the limit is too low, and this process may not raise it.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _FEWEST_FILES:
        return
    if hard != resource.RLIM_INFINITY and hard < _FEWEST_FILES:
        raise BuildError(_too_few_files())
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FEWEST_FILES, hard))


def _run(arguments: list[str]) -> int:
    _begin(arguments)
    if arguments == ["--version"]:
        from schemas import __version__

        print(f"thdpack {__version__}")
        return 0
    from pipeline.build.options import PreprocessOptions
    from pipeline.cli.arguments import BenchReaderOptions, PlanOptions, VerifyOptions, parsed
    from pipeline.cli.array_jobs import CommitOptions, RunTaskOptions, run_array_command
    from pipeline.cli.stats import StatsOptions, run_stats

    try:
        options = parsed(arguments)
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


def _begin(arguments: list[str]) -> None:
    """Have started beside us, before anything is loaded, what takes longest: workers.

    Raises:
        BuildError: no Ray cluster is at the address, or no file can be opened.
    """
    if not {"-h", "--help", "--version"} & set(arguments):
        _allow_files()
    if arguments[:1] not in (["preprocess"], ["verify"]) or {"-h", "--help", "--dry-run"} & set(
        arguments
    ):
        return
    if "ray" in arguments:
        if "--ray-address" in arguments[:-1]:
            from pipeline.executors.ray_cluster import join

            join(arguments[arguments.index("--ray-address") + 1])
        return
    from pipeline.executors.processes import preload

    preload(
        "pipeline.build.run_task",
        *(
            ["pipeline.storage.object_folder", "s3fs"]
            if any(argument.startswith("s3://") for argument in arguments)
            else []
        ),
    )


def _plan(options: PlanOptions) -> int:
    from pipeline.cli.plan import run_plan

    try:
        run_plan(
            options.data,
            options.model,
            options.gpus,
            precision=options.precision,
            tokens=options.tokens,
            as_json=options.log_json,
        )
    except ValueError as error:
        print(f"thdpack: {error}", file=sys.stderr)
        return 2
    return 0


def _preprocess(options: PreprocessOptions) -> int:
    if not options.inputs:
        print(
            "thdpack: no input given: name files, folders, globs, URLs, or - for standard input",
            file=sys.stderr,
        )
        return 2
    if options.dry_run:
        return _dry_run(options)
    if options.executor == "slurm-array":
        from pipeline.cli.array_jobs import run_array_command

        return run_array_command(options)
    started = time.perf_counter()
    from pipeline.build.build_dataset import build
    from pipeline.build.progress import reporter
    from pipeline.cli.array_jobs import print_built

    with reporter(as_json=options.log_json) as report:
        built = build(options, report)
    print_built(built, options.out, as_json=options.log_json, seconds=time.perf_counter() - started)
    return 0


def _dry_run(options: PreprocessOptions) -> int:
    from pipeline.build.build_plan import plan
    from pipeline.inputs.expand import refuse_inside

    if "-" in options.inputs:
        print(
            "thdpack: --dry-run cannot look at standard input without using it up", file=sys.stderr
        )
        return 2
    refuse_inside(options.out, options.inputs)
    planned = plan(options)
    for source in planned.sources:
        print(
            f"{source.bytes:>16,} bytes  {source.format}, {source.compression}  {without_credentials(source.url)}"
        )
    for line in planned.passed_over:
        print(f"     passed over  {without_credentials(line)}")
    print(
        f"would read {planned.input_bytes:,} bytes in {len(planned.ranges)} tasks, into {planned.partitions} partitions"
    )
    print(
        f"would need about {1.1 * planned.fasta_bytes / 1e6:,.1f} MB in {without_credentials(options.out)} for the dataset and as much again while it is built"
    )
    return 0


def _verify(options: VerifyOptions) -> int:
    from pipeline.build.verify_dataset import verify_dataset

    problems = verify_dataset(options.dataset, deep=options.deep, workers=options.workers)
    for problem in problems:
        print(problem)
    if problems:
        print(
            "thdpack: the dataset is damaged; its preprocess command builds it again, with --overwrite",
            file=sys.stderr,
        )
    else:
        print(f"{without_credentials(options.dataset)}: verified, nothing wrong")
    return 1 if problems else 0


def _bench_reader(options: BenchReaderOptions) -> int:
    from pipeline.reader import ShardReader
    from pipeline.reader.benchmark import bench_reader

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
        print(
            json.dumps(
                {
                    "event": "bench-reader",
                    "dataset": without_credentials(options.dataset),
                    **asdict(measured),
                }
            )
        )
        return 0
    for name, value in measured.lines():
        print(f"{name:>16}  {value}")
    return 0


def _inspect(options: InspectOptions) -> int:
    from pipeline.cli.inspect_dataset import show_bucket, show_record, show_summary

    dataset = options.dataset
    if options.bucket is not None:
        show_bucket(dataset, options.split, options.bucket)
    elif options.record is not None:
        show_record(dataset, options.record)
    else:
        show_summary(dataset)
    return 0
