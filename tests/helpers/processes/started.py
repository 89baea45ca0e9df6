"""`thdpack` in forked processes, which a test can kill, signal, or run concurrently."""

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
"""Python source code that runs a command in a fork.

A new interpreter reads fsspec's settings from the environment when it imports fsspec. When it ends,
it waits for threads and runs exit handlers. A fork does none of this by itself, so this code does
it.
"""


@functools.cache
def _commands(*more: str) -> Server:
    return Server(
        *more,
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
        "tests.helpers.stores.quick_clients",
        "tests.helpers.processes.command_line",
        "tests.helpers.processes.stopped",
    )


class Started:
    """A running command.

    pid: process id of the command.
    returncode: exit code; None until `communicate` or `poll` has seen the end.
    """

    def __init__(self, text: str, arguments: Sequence[str], imported: tuple[str, ...]) -> None:
        self._printed = Printed()
        server = _commands(*imported)
        self._fork = server.fork(text, arguments, environment(), self._printed.descriptor)
        self._printed.begin()
        self.pid = self._fork.pid

    @property
    def returncode(self) -> int | None:
        return self._fork.returncode

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the command runs."""
        return self._fork.poll()

    def send_signal(self, number: signal.Signals) -> None:
        self._fork.send(number)

    def kill(self) -> None:
        self._fork.send(signal.SIGKILL)

    def communicate(self, timeout: float = GIVE_UP_SECONDS) -> str:
        """Wait for the end of the command and of all processes that share its output. Return the
        output.

        Raises:
            TimeoutError: a process does not end in time.
        """
        self._fork.wait(timeout)
        return self._printed.all(timeout)

    def wait_until_stopped(self) -> None:
        """Wait until the command stops itself (see tests/helpers/processes/stopped.py).

        Raises:
            AssertionError: the command ends instead.
        """
        if not self._fork.stops():
            printed = self.communicate()
            raise AssertionError(f"ended with {self.returncode} before it stopped: {printed}")


def start(
    *arguments: object, setup: str = "", imported: tuple[str, ...] = (), **sizes: int
) -> Started:
    """Start `thdpack` in a forked process.

    Args:
        setup: Python statement to run first.
        imported: modules, besides the usual ones, that the server process imports before it forks.
            Each choice of modules needs its own server process.
        sizes: arguments of `small_tasks` (command_line.py).
    """
    text = _IN_A_FORK.format(program(setup, sizes))
    return Started(text, [str(argument) for argument in arguments], imported)


def stopping_after_outcomes(count: int) -> str:
    """Return a `setup` that makes a command stop itself when `count` tasks have finished."""
    return f"from tests.helpers.processes import stopped; stopped.stop_after_outcomes({count})"


def stopping_at_change(count: int, folder: object) -> str:
    """Return a `setup` that makes a command stop itself right before it makes change number
    `count` in a folder.
    """
    return (
        "from tests.helpers.processes import stopped; "
        f"stopped.stop_at_change({count}, {str(folder)!r})"
    )
