"""Lost ranks: when a collective fails, each rank finds out which ranks do not answer, prints a
message that names them, and ends.

A thread in each rank detects the failure:
1. It watches the last vote, an all-reduce in each step (stop_signals.py). The vote fails if a
   process has died, and times out if a process hangs.
2. The first thread that sees a failed vote sets the key `alarm` in torchrun's store. All threads
   watch this key.
3. Each thread sets a key of its own in the store, and waits a few seconds for the keys of all
   ranks. A rank without a key is lost.

A thread answers even if its main thread or its GPU waits in a collective. Only processes that have
ended, are stopped, or have no network do not answer.
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
_RESUME: Final = (
    "The last checkpoint is complete: run the same command to resume from it, on these ranks or "
    "others"
)


class LostRankError(ThdpackError):
    """Another rank does not answer."""


class Watch:
    """Detector of lost ranks. Each rank has one."""

    def __init__(self, store: Any, rank: int, world_size: int) -> None:
        """Args:
        store: key-value store of all ranks. Only this start of the job may use it.
        """
        self._store, self._rank, self._world_size = store, rank, world_size
        self._vote: Any = None
        self._main_waits = threading.Event()
        self._called, self._ended = threading.Event(), threading.Event()
        # the first of this rank's two threads to acquire this lock reports the lost ranks
        self._speaker = threading.Lock()
        self._said = ""  # the message that names the lost ranks, once they are known
        self._thread = threading.Thread(target=self._run, name="thdpack-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop watching, after the last collective of all ranks."""
        self._ended.set()
        self._thread.join(timeout=10)

    def vote(self, work: Any) -> None:
        """Watch this collective of all ranks from now on, instead of the previous one."""
        self._vote = work

    @contextmanager
    def over(self) -> Iterator[None]:
        """Turn the failure of a collective into an error that names the lost ranks.

        Raises:
            LostRankError: a collective failed. The message names the ranks that do not answer.
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
                self._thread.join()  # the watching thread reports the ranks and ends this process
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
        # torchrun's store does not answer, so torchrun has ended on the node of rank 0. It ends if
        # a rank on that node ends.
        except dist.DistError:
            self._said = (
                "the node of rank 0 does not answer: the node has failed, or a rank on it was "
                f"killed or ended with an error. {_RESUME}"
            )
        self._called.set()
        if self._main_waits.wait(timeout=_EVERY_SECONDS) or not self._speaker.acquire(
            blocking=False
        ):
            return
        # The main thread waits for the other ranks, perhaps on a GPU, and would never return.
        message = (
            self._said
            or f"a collective failed, but all ranks answer: see the first error above. {_RESUME}"
        )
        say(self._rank, message)
        os._exit(1)

    def _silent(self) -> list[int]:
        """Return the ranks that do not answer within a few seconds."""
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
        work.wait()  # the collective has ended: raise its error
    except RuntimeError:
        return True
    return False


def _names(lost: list[int]) -> str:
    who = f"rank {lost[0]} does" if len(lost) == 1 else f"ranks {', '.join(map(str, lost))} do"
    return (
        f"{who} not answer. Possible reasons: killed, out of memory, failed machine, or an error "
        f"that the rank itself has printed. {_RESUME}"
    )


def _is_of_a_collective(error: BaseException | None) -> bool:
    """Return whether an error was caused by a failed collective.

    The error may be the cause of another error, such as a CheckpointError. gloo raises plain
    RuntimeErrors, so the text of the error has to be examined.
    """
    while error is not None:
        if isinstance(error, dist.DistError):
            return True
        words = ("gloo", "NCCL", "Connection closed by peer", "Connection reset")
        if isinstance(error, RuntimeError) and any(word in str(error) for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False
