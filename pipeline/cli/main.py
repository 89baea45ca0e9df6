"""The `thdpack` command: signals, exit codes, errors, and the call of a subcommand.

A subcommand's module is imported when it runs, so that `--help` is quick.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final

from pipeline.cli.open_files import lacks_files, raise_limit, too_few_files
from pipeline.executors.numpy_threads import no_numpy_threads
from pipeline.storage.interrupt import INTERRUPTED, interrupt
from pipeline.storage.s3.fsspec_settings import refuse_broken_variable
from schemas.errors import OptionError, ThdpackError
from schemas.python_environment import ERRORS_ON_STDOUT
from schemas.text.redact import without_credentials

_TASKS: Final = {
    **dict.fromkeys(("preprocess", "append", "compact"), "pipeline.build.run_task"),
    **dict.fromkeys(("verify", "push"), "pipeline.build.verify.verify_dataset"),
}
"""For each subcommand that starts workers: the module that its workers import."""
_BROKEN_PIPE: Final = 141
"""Exit code if a program such as `head`, to which the output is piped, has closed the pipe. The
code is 128 + SIGPIPE, as in shells."""

_COLLECTION: Final = 50_000
"""Number of new objects after which Python collects garbage."""
_RESUMED: Final = {"preprocess", "append", "plan-tasks", "run-task", "commit", "push"}
"""Commands that resume if they are run again after an interruption."""


def main() -> None:
    """Install signal handlers, run the command, and exit with its code."""
    code = 1
    # The default would collect garbage 250 times during imports, which takes 20 ms.
    gc.set_threshold(_COLLECTION)
    # This handler runs last. It skips the interpreter's clean-up, which takes 0.2 s.
    atexit.register(lambda: os._exit(code))
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # a background job ignores SIGINT, and must continue to ignore it
        signal.signal(signal.SIGINT, interrupt)
    code = run_command(sys.argv[1:])
    if code == _BROKEN_PIPE:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


def run_command(arguments: Sequence[str]) -> int:
    """Run a command, print its errors, and return its exit code.

    Exit codes: 0 success, 1 an error that the message explains, 2 wrong usage, 130 interrupted,
    141 the program that reads the output has closed the pipe.
    """
    try:
        code = _run(list(arguments))
        sys.stdout.flush()
        return code
    except ThdpackError as error:
        _say(arguments, str(error))
        _say_notes(arguments, error)
        return 2 if isinstance(error, OptionError) else 1
    except KeyboardInterrupt as error:
        code = _interrupted(arguments)
        _say_notes(arguments, error)
        return code
    except BrokenPipeError:  # for example with `| head`
        return _BROKEN_PIPE
    except Exception as error:  # a bug, in thdpack or in a library
        if INTERRUPTED.is_set():  # an import may turn a KeyboardInterrupt into another error
            return _interrupted(arguments)
        if lacks_files(error):
            _say(arguments, too_few_files())
            return 1
        print(without_credentials(traceback.format_exc()), file=sys.stderr)
        return 1
    except SystemExit as leaving:  # tyro's --help
        return leaving.code if isinstance(leaving.code, int) else 0


def _interrupted(arguments: Sequence[str]) -> int:
    """Print that the command was interrupted, and return the exit code."""
    remedy = "; run the same command to resume" if {*arguments[:1]} & _RESUMED else ""
    _say(arguments, f"interrupted{remedy}")
    return 130


def _say(arguments: Sequence[str], text: str) -> None:
    """Print an error message that begins with the command, such as "thdpack verify:". With
    --log-json, also print the error as a JSON object on standard output."""
    if ERRORS_ON_STDOUT in os.environ:
        print(text, flush=True)
        return
    command = " ".join(["thdpack", *arguments[:1]])
    if "--log-json" in arguments:
        print(json.dumps({"event": "error", "command": command, "text": text}), flush=True)
    print(f"{command}: {text}", file=sys.stderr)


def _say_notes(arguments: Sequence[str], error: BaseException) -> None:
    """Print the notes of an error. With --log-json, print them as JSON objects instead."""
    if ERRORS_ON_STDOUT in os.environ:
        return
    for note in getattr(error, "__notes__", ()):
        text = without_credentials(note)
        if "--log-json" in arguments:
            print(json.dumps({"event": "note", "text": text}), flush=True)
        else:
            print(text, file=sys.stderr)


def _run(arguments: list[str]) -> int:
    _start_workers_early(arguments)
    if arguments[:1] in (["--version"], ["-V"]):
        from schemas import __version__

        print(f"thdpack {__version__}")
        return 0
    from pipeline.cli.arguments import UnknownCommandError, UsageError, parsed, short_help

    if not arguments:
        print(short_help(), file=sys.stderr)
        return 2
    if arguments == ["help"]:
        print(short_help())
        return 0
    if arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    try:
        return _subcommand(parsed(arguments))
    except UnknownCommandError as error:
        print(f"thdpack: {error}", file=sys.stderr)
        return 2
    except UsageError as error:
        _say(arguments, str(error))
        return 2


def _start_workers_early(arguments: list[str]) -> None:
    """Start workers in the background before all other work, because their start takes longest.

    Raises:
        OptionError: Ray is not installed.
        SettingError: FSSPEC_S3 is not an object of JSON.
        BuildError: no Ray cluster answers at the address, or the limit of open files is too low.
    """
    if {"-h", "--help", "--version"} & set(arguments):
        return
    raise_limit()
    if not arguments or arguments[0] not in _TASKS or "--dry-run" in arguments:
        return
    if "ray" in arguments:
        index = arguments.index("--ray-address") + 1 if "--ray-address" in arguments[:-1] else 0
        if index and arguments[index]:  # the parser refuses an empty value
            from pipeline.executors.ray_connection import join

            join(arguments[index])
        return
    from pipeline.executors.processes import preload

    on_s3 = any(argument.startswith("s3://") for argument in arguments)
    if on_s3:
        refuse_broken_variable()  # before the workers import fsspec, which would print a warning
    preload(_TASKS[arguments[0]], *(["pipeline.storage.object_folder", "s3fs"] * on_s3))


def _subcommand(options: Any) -> int:
    """Run the subcommand whose options are given, and return an exit code."""
    with no_numpy_threads():
        import numpy  # noqa: F401 (here, so that later imports find it)

    from pipeline.build.append.options import AppendOptions, CompactOptions
    from pipeline.build.options import PreprocessOptions
    from pipeline.cli.generations.options import GcOptions, GenerationsOptions
    from pipeline.cli.options import subcommand_options as a
    from pipeline.cli.options.report_options import CardOptions, PushOptions, StatsOptions
    from pipeline.service.options import WatchOptions

    match options:
        case a.PlanTasksOptions():
            from pipeline.cli.array_jobs import run_plan_tasks

            return run_plan_tasks(options.preprocess)
        case PreprocessOptions():
            from pipeline.cli.preprocess import run_preprocess

            return run_preprocess(options)
        case AppendOptions():
            from pipeline.cli.generations.append import run_append

            return run_append(options)
        case CompactOptions():
            from pipeline.cli.generations.compact import run_compact

            return run_compact(options)
        case GcOptions():
            from pipeline.cli.generations.gc import run_gc

            return run_gc(options)
        case WatchOptions():
            from pipeline.cli.generations.watch import run_watch

            return run_watch(options)
        case GenerationsOptions():
            from pipeline.cli.generations.list_generations import run_generations

            return run_generations(options)
        case a.RunTaskOptions():
            from pipeline.cli.array_jobs import run_run_task

            return run_run_task(options)
        case a.CommitOptions():
            from pipeline.cli.array_jobs import run_commit

            return run_commit(options)
        case a.VerifyOptions():
            from pipeline.cli.verify import run_verify

            return run_verify(options)
        case a.InspectOptions():
            from pipeline.cli.inspect_dataset import run_inspect

            return run_inspect(options)
        case StatsOptions():
            from pipeline.cli.stats import run_stats

            return run_stats(options)
        case CardOptions():
            from pipeline.cli.card import run_card

            return run_card(options)
        case PushOptions():
            from pipeline.cli.push import run_push

            return run_push(options)
        case a.BenchReaderOptions():
            from pipeline.cli.bench_reader import run_bench_reader

            return run_bench_reader(options)
        case a.PlanOptions():
            from pipeline.cli.plan import run_plan

            return run_plan(options)
        case a.TrainArguments() | a.EmbedArguments() | a.ScoreArguments():
            from pipeline.cli.arguments import UsageError

            raise UsageError(
                "commands that need torch run only as `thdpack COMMAND …` or `python -m thdpack "
                "COMMAND …`; if you typed that, install thdpack again"
            )
    raise AssertionError(f"no subcommand takes {options!r}")
