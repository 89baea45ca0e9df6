"""Detect lost ranks. When a collective fails, each rank finds the ranks that do not answer, prints
a message that names these ranks, and ends.

A thread in each rank detects the failure:
1. The threads of all ranks run a heartbeat: a small all-reduce on the CPU, every two seconds. The
   heartbeat fails if a process has died, and times out if a process hangs. The threads also watch
   the latest vote. A vote is an all-reduce in each step (stop_signals.py), and often fails earlier
   than the heartbeat. Votes alone are not enough: with a captured step (CUDA graph), a rank may
   wait for its GPU before it starts the next vote.
2. The first thread that sees a failure sets the key `alarm` in torchrun's store. All threads watch
   this key.
3. Each thread sets a key of its own in the store, and waits a few seconds for the keys of all
   ranks. A rank without a key is lost.

When Ctrl-C ends a rank, the rank first sets the key `interrupted`. The other ranks then end in the
same way, and name no lost rank.

A thread answers even if the main thread or the GPU of its process waits in a collective. A rank is
silent only if its process has ended, is stopped, or has no network.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import torch
import torch.distributed as dist

from schemas.errors import ThdpackError
from trainer.distributed.rank_message import say

_EVERY_SECONDS: Final = 0.5
_BEAT_SECONDS: Final = 2.0
_ENDING_SECONDS: Final = 0.02
_ROLL_CALL_SECONDS: Final = 5.0
_INTERRUPTED: Final = "interrupted"
_RESUME: Final = (
    "If the run has a checkpoint, the last one is complete: run the same command to resume from "
    "it, on these ranks or others"
)


class LostRankError(ThdpackError):
    """Another rank does not answer."""


class Watch:
    """Detector of lost ranks. Each rank has one detector."""

    def __init__(self, store: Any, group: Any, rank: int, world_size: int) -> None:
        """Args:
        store: key-value store of all ranks. A restarted job must not see keys of its earlier start.
        group: gloo process group of all ranks, for the heartbeat only.
        """
        self._store, self._rank, self._world_size = store, rank, world_size
        self._heart = Heartbeat(group)
        self._vote: Any = None
        self._main_waits = threading.Event()
        self._called, self._ended = threading.Event(), threading.Event()
        # the first of this rank's two threads to acquire this lock reports the lost ranks
        self._speaker = threading.Lock()
        self._said = ""  # the message that names the lost ranks, once they are known
        self._interrupted = False
        self._thread = threading.Thread(target=self._run, name="thdpack-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop watching, after the last collective of all ranks. Wait until all ranks have called
        this, because the end of a process would break the heartbeat of the other ranks.
        """
        self._ended.set()
        self._thread.join()

    def vote(self, work: Any) -> None:
        """From now on, watch this collective of all ranks instead of the previous collective."""
        self._vote = work

    @contextmanager
    def over(self) -> Iterator[None]:
        """Turn the failure of a collective into an error that names the lost ranks.

        Raises:
            LostRankError: a collective failed. The message names the ranks that do not answer.
            KeyboardInterrupt: a collective failed, because Ctrl-C ended another rank.
        """
        try:
            yield
        except KeyboardInterrupt:
            with suppress(dist.DistError):  # torchrun may have ended already
                self._store.set(_INTERRUPTED, "")
            raise
        except (RuntimeError, ThdpackError) as error:
            if not _is_of_a_collective(error):
                raise
            self._main_waits.set()
            while not self._called.wait(timeout=_ROLL_CALL_SECONDS) and self._thread.is_alive():
                pass
            if not self._speaker.acquire(blocking=False):
                self._thread.join()  # the watching thread reports the ranks and ends this process
            if self._interrupted:
                raise KeyboardInterrupt from error
            if not self._said:
                raise
            raise LostRankError(self._said) from error

    def _run(self) -> None:
        try:
            if not self._is_lost():
                return
            self._interrupted = self._store.check([_INTERRUPTED])
            lost = [] if self._interrupted else self._silent()
            self._said = _names(lost) if lost else ""
        # torchrun's store does not answer, so torchrun has ended on the node of rank 0. torchrun
        # ends if a rank on its node ends.
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
        if self._interrupted:
            say(self._rank, "Ctrl-C has ended another rank; this rank ends, too")
            os._exit(130)
        message = (
            self._said
            or f"a collective failed, but all ranks answer: see the first error above. {_RESUME}"
        )
        say(self._rank, message)
        os._exit(1)

    def _is_lost(self) -> bool:
        """Wait until a collective fails or all ranks have called `stop`. Return whether a
        collective has failed.
        """
        while not self._heart.stopped:
            ended = self._ended.wait(_EVERY_SECONDS)
            if not self._heart.beat(stop=ended):
                return not ended  # after the last collective, a lost rank does no harm
            if self._main_waits.is_set() or _broke(self._vote) or self._store.check(["alarm"]):
                return True
            if ended:
                time.sleep(_ENDING_SECONDS)
        return False

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


class Heartbeat:
    """A series of all-reduces of all ranks. The result of each all-reduce tells the ranks whether
    another one follows.

    stopped: True after the last heartbeat.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self._work: Any = None
        self._running = torch.zeros((), dtype=torch.int32)
        self._begun = 0.0
        self.stopped = False

    def beat(self, *, stop: bool) -> bool:
        """Start a heartbeat if the previous heartbeat has ended, and began two seconds ago or more.
        Return False if the previous heartbeat has failed.

        Args:
            stop: True if this rank is ready to stop. The rank then starts heartbeats without a
                pause. If all ranks are ready, this heartbeat is the last.
        """
        if self._work is not None:
            if not self._work.is_completed():
                return True
            if _broke(self._work):
                return False
            self.stopped = not self._running.item()
            if self.stopped or (not stop and time.monotonic() - self._begun < _BEAT_SECONDS):
                return True
        self._running.fill_(not stop)
        self._begun = time.monotonic()
        self._work = dist.all_reduce(self._running, group=self._group, async_op=True)
        return True


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
    RuntimeErrors, so this function searches the text of the error.
    """
    while error is not None:
        if isinstance(error, dist.DistError):
            return True
        words = ("gloo", "NCCL", "Connection closed by peer", "Connection reset")
        if isinstance(error, RuntimeError) and any(word in str(error) for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False
