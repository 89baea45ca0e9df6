"""Who is lost: when ranks stop hearing of each other, each finds out which ones do not answer, says so, and ends.

A thread of each rank looks at the last vote (stop_signals.py), which breaks when a process dies and times out when one hangs, and at a note in torchrun's
store that says that somebody else's broke. Then there is a roll call in the store. Threads answer for main threads that wait in a collective, or for
a GPU that waits in one: only processes that are gone, stopped, or cut off are silent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch.distributed as dist

from schemas.errors import ThdpackError
from trainer.distributed.rank_message import say

_EVERY_SECONDS: Final = 0.5
_ROLL_CALL_SECONDS: Final = 5.0
_GO_ON: Final = (
    "The last checkpoint is whole: the same command goes on from it, on these ranks or on others"
)


class LostRankError(ThdpackError):
    """Another rank is gone, or does not answer."""


class Watch:
    """Of one rank, over the others."""

    def __init__(self, store: Any, rank: int, world_size: int) -> None:
        """store: where ranks leave each other notes; of this start of the job only."""
        self._store, self._rank, self._world_size = store, rank, world_size
        self._vote: Any = None
        self._main_waits = threading.Event()
        self._called, self._ended = threading.Event(), threading.Event()
        self._speaker = (
            threading.Lock()
        )  # held by the one thread of this rank that says who is lost
        self._said = ""  # who is lost, once that is known
        self._thread = threading.Thread(target=self._run, name="thdpack-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """All ranks have done what they do together."""
        self._ended.set()
        self._thread.join(timeout=10)

    def vote(self, work: Any) -> None:
        """Look at this collective, which all ranks take part in, from now on."""
        self._vote = work

    @contextmanager
    def over(self) -> Iterator[None]:
        """Where a collective fails because a rank is gone or silent, say which.

        Raises:
            LostRankError: names those that do not answer.
        """
        try:
            yield
        except (RuntimeError, ThdpackError) as error:
            if not _is_of_a_collective(error):
                raise
            self._main_waits.set()
            while not self._called.wait(timeout=_ROLL_CALL_SECONDS) and self._thread.is_alive():
                pass
            if not self._speaker.acquire(blocking=False):
                self._thread.join()  # it is saying so, and ends this process
            if not self._said:
                raise
            raise LostRankError(self._said) from error

    def _run(self) -> None:
        try:
            while not self._ended.wait(_EVERY_SECONDS):
                if self._main_waits.is_set() or _broke(self._vote) or self._store.check(["alarm"]):
                    lost = self._silent()
                    self._said = _names(lost) if lost else ""
                    break
            else:
                return
        except dist.DistError:  # torchrun's store went, with the torchrun of rank 0's node: that ends when a rank of its own does
            self._said = f"the node of rank 0 does not answer: a rank of it was killed or ended by an error of its own, or the node is gone. {_GO_ON}"
        self._called.set()
        if self._main_waits.wait(timeout=_EVERY_SECONDS) or not self._speaker.acquire(
            blocking=False
        ):
            return
        # the main thread waits for the others, perhaps on a GPU, and for ever
        said = (
            self._said
            or f"a collective failed, though all ranks answer: the first error says why. {_GO_ON}"
        )
        say(self._rank, said)
        os._exit(1)

    def _silent(self) -> list[int]:
        """Ranks that do not answer within a few seconds."""
        self._store.set("alarm", "")
        self._store.set(f"here/{self._rank}", "")
        deadline = time.monotonic() + _ROLL_CALL_SECONDS
        silent = set(range(self._world_size))
        while silent and time.monotonic() < deadline:
            silent -= {rank for rank in silent if self._store.check([f"here/{rank}"])}
            time.sleep(0.1)
        return sorted(silent)


def _broke(work: Any) -> bool:
    if work is None or not work.is_completed():
        return False
    try:
        work.wait()  # it has ended: says how
    except RuntimeError:
        return True
    return False


def _names(lost: list[int]) -> str:
    who = f"rank {lost[0]} does" if len(lost) == 1 else f"ranks {', '.join(map(str, lost))} do"
    return f"{who} not answer: killed, out of memory, its machine gone, or ended by an error of its own, which it says itself. {_GO_ON}"


def _is_of_a_collective(error: BaseException | None) -> bool:
    """Whether a collective that failed is what an error began with.

    A checkpoint that breaks off because a rank is lost is a CheckpointError, raised from the error of the collective.
    gloo raises plain RuntimeErrors.
    """
    while error is not None:
        if isinstance(error, dist.DistError):
            return True
        words = ("gloo", "NCCL", "Connection closed by peer", "Connection reset")
        if isinstance(error, RuntimeError) and any(word in str(error) for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False
