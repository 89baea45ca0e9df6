"""Stop signals: SIGTERM (from schedulers), SIGUSR1 (Slurm's warning) and Ctrl-C make all ranks stop
after the same step. A second Ctrl-C ends the run at the next micro-batch (a part of a step).

Ranks receive a signal at different steps. Therefore all ranks vote in each step whether to stop.
The vote is an all-reduce on the CPU. The vote runs during the step, and its result is read one step
later. Therefore no rank waits for the vote. After a second Ctrl-C no vote takes place: each rank
ends by itself. This is safe, because a checkpoint is published only when it is complete.

Python runs a signal handler between two instructions of the main thread. In training on a CPU, one
instruction may take minutes. Therefore a separate thread reads the signals from a pipe, and prints
a message immediately.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Final, Self

import torch
import torch.distributed as dist

from trainer.distributed.rank_message import command
from trainer.distributed.topology import Topology

STOPPING: Final = (signal.SIGTERM, signal.SIGUSR1)
_SAME_PRESS: Final = 0.5
"""A second SIGINT within this time, in seconds, counts as the same Ctrl-C: for one Ctrl-C, the
terminal sends a SIGINT, and torchrun sends another."""


def explained(number: int, *, ranks: int, last_work: str = "") -> str:
    """Return a message about the effect and the likely sender of a first signal.

    Args:
        last_work: the work of the run that is still completed; "" for a step and a checkpoint.
    """
    step = last_work or f"{'this step' if ranks == 1 else 'the next step'}, with a checkpoint"
    if number == signal.SIGINT:
        again = "" if last_work else ", without one"
        return f"stopping after {step}; Ctrl-C again stops now{again}"
    sender = ""
    if number == signal.SIGTERM and ranks > 1:
        sender = " (sent by a scheduler, or by torchrun because another rank has ended)"
    return f"{signal.Signals(number).name} received{sender}: stopping after {step}"


class StopRequest:
    """Context in which a stop signal makes `agreed` return True on all ranks after the same step.
    After a first signal, Ctrl-C raises KeyboardInterrupt.

    last_work: see `explained`.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.last_work = ""
        self._wanted = self._again = False
        self._handled = 0.0
        self._vote: tuple[Any, torch.Tensor] | None = None
        self._before: dict[int, Any] = {}
        self._answer = threading.Thread(target=self._listen, name="thdpack-stop", daemon=True)

    def __enter__(self) -> Self:
        self._signals, written = os.pipe()
        os.set_blocking(written, False)
        for number in (*STOPPING, signal.SIGINT):
            self._before[number] = signal.signal(number, self._handle)
        self._written, self._descriptor = written, signal.set_wakeup_fd(written)
        self._answer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._vote is not None and kind is None:
            self._vote[0].wait()
        # After an error on one of several ranks, the handlers stay: otherwise torchrun's SIGTERM
        # would end this process before it has printed its error.
        if kind is None or self._topology.world_size == 1:
            for number, handler in self._before.items():
                signal.signal(number, handler)
        signal.set_wakeup_fd(self._descriptor)
        os.close(self._written)
        self._answer.join()  # the closed pipe ends this thread
        os.close(self._signals)

    def _listen(self) -> None:
        """Record signals and answer them, until the pipe is closed."""
        first = 0.0
        while received := os.read(self._signals, 1):
            number, now = received[0], time.monotonic()
            if number not in self._before:
                continue
            if not first:
                first = now
                self._wanted = True
                self._say(number)
            elif number == signal.SIGINT and now - first > _SAME_PRESS:
                self._again = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Record a signal. Python runs this in the main thread. Therefore a KeyboardInterrupt ends
        even a call in which the main thread waits.
        """
        now = time.monotonic()
        if not self._handled:
            self._handled = now
            self._wanted = True
        elif number == signal.SIGINT and now - self._handled > _SAME_PRESS:
            self._again = True
        self.raise_if_pressed_again()

    def _say(self, number: int) -> None:
        if self._topology.is_main:
            text = explained(number, ranks=self._topology.world_size, last_work=self.last_work)
            line = f"{command()}: {text}\n"
            # not through sys.stderr, whose lock the main thread may hold
            os.write(2, f"{chr(10) if os.isatty(2) else ''}{line}".encode())

    def raise_if_pressed_again(self) -> None:
        """Raise KeyboardInterrupt after a second Ctrl-C. Call this before each micro-batch.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed twice.
        """
        if self._again:
            raise KeyboardInterrupt

    @property
    def requested(self) -> bool:
        """True if this rank has received a signal. The other ranks may not know this yet."""
        return self._wanted

    def agreed(self, *, wait: bool = False) -> bool:
        """Start a vote, and return the result of the previous vote. All ranks must call this after
        each step.

        Args:
            wait: return the result of the vote that starts now.
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
        if wait:
            before, self._vote = self._vote, None
        if before is None:
            return False
        before[0].wait()
        return bool(before[1].item())
