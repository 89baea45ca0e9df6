"""Ranks of a training job, forked from a process that has already imported torch.

A fork takes 10 ms, but a rank that torchrun starts takes five seconds of CPU. Forked ranks have the
environment variables that torchrun sets. As under torchrun, the process that starts the ranks holds
their rendezvous store. To test torchrun itself (restarts, forwarded signals), use `torchrun` of
runs.py.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Sequence
from typing import Any, Final

import torch.distributed as dist

from tests.helpers.processes.command_line import environment
from tests.helpers.processes.forks import GIVE_UP_SECONDS, Printed, Server

__all__ = ["GIVE_UP_SECONDS", "TRAIN", "Job"]

TRAIN: Final = "import sys; from trainer.train import main; main(sys.argv[1:])"


class Job:
    """Ranks that were started together, and their output (standard error included)."""

    def __init__(self, program: str, arguments: Sequence[str], *, ranks: int = 1) -> None:
        """Start the ranks.

        Args:
            program: Python source code.
            arguments: values of sys.argv[1:].
            ranks: number of ranks. A single rank trains as one process, without rendezvous.
        """
        self._printed = Printed()
        self._store: Any = None  # must live as long as the job, as under torchrun
        each: list[dict[str, str]] = [{}]
        if ranks > 1:
            self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            shared = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(self._store.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                "WORLD_SIZE": str(ranks),
            }
            each = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        variables = {**environment(), "OMP_NUM_THREADS": "1"}
        self.ranks = [
            _server().fork(program, arguments, {**variables, **mine}, self._printed.descriptor)
            for mine in each
        ]
        self._printed.begin()

    @property
    def pid(self) -> int:
        """Process id of rank 0."""
        return self.ranks[0].pid

    @property
    def said(self) -> str:
        """Text that the ranks have printed so far."""
        return self._printed.text

    def poll(self) -> int | None:
        """Return None while a rank runs. Then return the first nonzero exit status, or 0."""
        found = [rank.poll() for rank in self.ranks]
        return None if None in found else next((status for status in found if status), 0)

    def wait(self) -> int:
        """Wait for all ranks. Return the first nonzero exit status, or 0."""
        for rank in self.ranks:
            rank.wait()
        self._printed.all()
        status = self.poll()
        assert status is not None
        return status

    def kill(self) -> None:
        """Send SIGKILL to every rank, and wait for the end of all ranks."""
        for rank in self.ranks:
            rank.send(signal.SIGKILL)
        self.wait()

    def finish(self) -> str:
        """Wait for all ranks, check that they exit with 0, and return their output."""
        try:
            assert self.wait() == 0, self.said
        finally:
            self.kill()
        return self.said

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


_starting = threading.Lock()


def _server() -> Server:
    """Return the only server of this process. Threads may call this function concurrently."""
    with _starting:
        return _only_server()


@functools.cache
def _only_server() -> Server:
    return Server("trainer.model.layer_torch", "tests.helpers.processes.warm_trainer")
