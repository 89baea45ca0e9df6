"""Stop signals: SIGTERM (from schedulers), SIGUSR1 (Slurm's warning) and Ctrl-C make all ranks stop
after the same step.

Ranks receive a signal at different steps. Therefore all ranks vote in each step whether to stop.
The vote is an all-reduce on the CPU. It runs during the step, and its result is read one step
later, so that no rank waits for it.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Final, Self

import torch
import torch.distributed as dist

from trainer.distributed.topology import Topology

STOPPING: Final = (signal.SIGTERM, signal.SIGUSR1)


class StopRequest:
    """Context in which a stop signal makes `agreed` return True on all ranks after the same step.
    After a first signal, Ctrl-C raises KeyboardInterrupt.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._wanted = False
        self._vote: tuple[Any, torch.Tensor] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (*STOPPING, signal.SIGINT):
            self._before[number] = signal.signal(number, self._want)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._vote is not None and kind is None:
            self._vote[0].wait()
        if (
            kind is None or self._topology.world_size == 1
        ):  # Otherwise torchrun's SIGTERM would end this process before it has printed its error.
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _want(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._wanted:
            raise KeyboardInterrupt
        self._wanted = True

    def agreed(self) -> bool:
        """Start this step's vote, and return the result of the previous step's vote. All ranks must
        call this once per step.
        """
        if self._topology.world_size == 1:
            return self._wanted
        before = self._vote
        ballot = torch.tensor(int(self._wanted), dtype=torch.int32)
        self._vote = (
            dist.all_reduce(ballot, group=self._topology.vote_group, async_op=True),
            ballot,
        )
        if self._topology.watch:
            self._topology.watch.vote(self._vote[0])
        if before is None:
            return False
        before[0].wait()
        return bool(before[1].item())
