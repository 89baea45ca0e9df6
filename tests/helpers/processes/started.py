"""`thdpack` in forks of one process, which a test kills, signals or runs at the same time."""

from __future__ import annotations

import functools
import signal
from collections.abc import Sequence

from tests.helpers.processes.command_line import environment, program
from tests.helpers.processes.forks import GIVE_UP_SECONDS, Printed, Server

_IN_A_FORK = """
import atexit, threading, fsspec.config
fsspec.config.set_conf_env(fsspec.config.conf)
try:
    exec(compile({!r}, "<command>", "exec"))
finally:
    threading._shutdown()
    atexit._run_exitfuncs()
"""
"""Program around a command that does what an interpreter does at its start and end.

It reads fsspec's settings, ends threads, and runs exit handlers.
"""


@functools.cache
def _commands() -> Server:
    return Server(
        "pipeline.build.build_dataset",
        "pipeline.executors.processes",
        "pipeline.build.assemble_manifest",
        "pipeline.build.task_markers",
        "pipeline.executors.worker_memory",
        "pipeline.storage.object_folder",
        "pipeline.build.map_stage.partition_records",
        "pipeline.build.reduce_stage.reduce_partition",
        "pipeline.build.array_jobs.run_listed",
        "pipeline.build.verify.check_shards",
        "rich.progress",
        "s3fs",
        "tests.helpers.processes.command_line",
        "tests.helpers.processes.stopped",
    )


class Started:
    """A running command.

    pid: its process.
    returncode: its exit code, once `communicate` or `poll` has seen its end.
    """

    def __init__(self, text: str, arguments: Sequence[str]) -> None:
        self._printed = Printed()
        self._fork = _commands().fork(text, arguments, environment(), self._printed.descriptor)
        self._printed.begin()
        self.pid = self._fork.pid

    @property
    def returncode(self) -> int | None:
        return self._fork.returncode

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._fork.poll()

    def send_signal(self, number: signal.Signals) -> None:
        self._fork.send(number)

    def kill(self) -> None:
        self._fork.send(signal.SIGKILL)

    def communicate(self, timeout: float = GIVE_UP_SECONDS) -> str:
        """Wait for the command and all processes that hold its output; return the output.

        Raises:
            TimeoutError: it does not end.
        """
        self._fork.wait(timeout)
        return self._printed.all(timeout)

    def wait_until_stopped(self) -> None:
        """Wait until the command stops itself (see tests/helpers/processes/stopped.py).

        Raises:
            AssertionError: it ends instead.
        """
        if not self._fork.stops():
            printed = self.communicate()
            raise AssertionError(f"ended with {self.returncode} before it stopped: {printed}")


def start(*arguments: object, setup: str = "", **sizes: int) -> Started:
    """Start `thdpack` in a process of its own, a fork of one that has imported it.

    setup: a Python statement to run first.
    sizes: those of `small_tasks`.
    """
    return Started(
        _IN_A_FORK.format(program(setup, sizes)), [str(argument) for argument in arguments]
    )


def stopping_after_outcomes(count: int) -> str:
    """Return a `setup` with which a command stops itself after so many outcomes of tasks."""
    return f"from tests.helpers.processes import stopped; stopped.stop_after_outcomes({count})"


def stopping_at_change(count: int, folder: object) -> str:
    """Return a `setup` with which a command stops itself before its change `count` of a folder."""
    return (
        "from tests.helpers.processes import stopped; "
        f"stopped.stop_at_change({count}, {str(folder)!r})"
    )
