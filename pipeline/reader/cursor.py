"""A position in an endless global order of buckets, and the part of the order that each rank reads.

`ShardReader` and `Mixture` are subclasses of this module's `GlobalCursor`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Final, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.reader.adapters import merge
from pipeline.reader.guards.data_loader_guard import repeating_workers
from pipeline.reader.guards.fork_guard import call_after_fork, opened_elsewhere
from pipeline.reader.order.global_order import POSITIONS
from pipeline.reader.ranks import Ranks
from pipeline.storage.retries import ClosedError
from schemas.errors import StateError
from schemas.shard import Bucket
from schemas.text.option_checks import whole_number
from schemas.text.redact import without_credentials

STATE_VERSION: Final = 1
"""Version of a reader's state. It changes if the order or the meaning of `position` changes."""

_Take = Callable[[NDArray[np.int64]], Iterator[Bucket]]


class GlobalCursor(Iterator[Bucket]):
    """An endless iterator over this rank's buckets. All ranks that have completed the same number
    of steps have the same state."""

    others: ClassVar[str] = "another dataset, or of a mixture"
    """Possible origins of a state that belongs to another manifest, for the error."""

    def _begin(
        self,
        ranks: Ranks,
        *,
        source: str,
        digest: str,
        split: str,
        seed: int,
        take: _Take,
        stop: Callable[[], None],
        block: int,
    ) -> None:
        """Start at position 0.

        This method is not named `__init__`, because `help(ShardReader)` would then show this text.

        Args:
            source: URL of the dataset, or "the mixture", for error messages.
            digest: digest of all inputs that determine the order, except split and seed.
            take: function that yields the buckets at ascending positions.
            stop: function that ends the threads. `stop` and `take` must not refer to this object.
                A reference would keep the object alive, and its threads would never end.
            block: number of positions to pass to `take` in one call.
        """
        self._endless = partial(_endless, take, ranks.groups, block)
        self._ranks, self._source = ranks, without_credentials(source)
        self._identity: dict[str, int | str] = {
            "version": STATE_VERSION,
            "manifest": digest,
            "split": split,
            "seed": whole_number("seed", seed),
        }
        # runs `stop` when this object is dropped, or when the interpreter exits
        self._finalizer = weakref.finalize(self, stop)
        self._start = 0
        self._delivered = 0
        self._forked = False
        self._buckets = self._from_here()
        call_after_fork(self)

    def __next__(self) -> Bucket:
        try:
            bucket = next(self._buckets)
        except BaseException:
            # a generator that raised an error cannot continue: make a new one at the same position
            self._buckets = self._from_here()
            raise
        self._delivered += 1
        return bucket

    def __iter__(self) -> Iterator[Bucket]:
        """Yield the same buckets as `__next__`, without the cost of a call for each bucket."""
        while True:
            buckets = self._buckets
            try:
                for bucket in buckets:
                    self._delivered += 1
                    yield bucket
                    if self._buckets is not buckets:  # `seek` was called meanwhile
                        break
            except BaseException:
                self._buckets = self._from_here()  # see __next__
                raise

    def _frontier(self) -> int:
        """Return the first position that no rank has read, if all ranks have read the same number
        of buckets."""
        return self._start + self._delivered * self._ranks.groups

    def until(self, end: int) -> Iterator[Bucket]:
        """Yield this rank's buckets before a position. Afterwards, the reader is at `end`."""
        ranks = self._ranks
        while (frontier := self._frontier()) < end:
            if frontier + (ranks.group - frontier) % ranks.groups >= end:
                self.seek(end)  # this rank has no bucket in the last round
                return
            bucket = next(self)
            if self._frontier() >= end:  # a state saved in the body of the loop begins at `end`
                self.seek(end)
            yield bucket

    def batches(self, buckets: int) -> Iterator[Bucket]:
        """Yield THD rows, each merged from `buckets` buckets of this rank. See `merge`.

        Raises:
            ValueError: the number of this rank's buckets in a step is not a multiple of `buckets`.
        """
        if buckets < 1 or self._ranks.share % buckets:
            raise ValueError(
                f"batches of {buckets} buckets: expected a divisor of {self._ranks.share}, which "
                "is the number of buckets of each rank in a step"
            )
        return self._merged(buckets)

    def _merged(self, buckets: int) -> Iterator[Bucket]:
        while True:
            delivered = self._delivered
            try:
                batch = merge([next(self) for _ in range(buckets)])
            except BaseException:  # no bucket of an unfinished batch counts as delivered
                self._delivered = delivered
                self._buckets = self._from_here()
                raise
            yield batch

    def described(self, source: object, more: Mapping[str, object]) -> str:
        """Return the text of `repr`: source, split, rank, world size and position."""
        ranks = self._ranks
        values = {
            "split": self._identity["split"],
            **more,
            "rank": ranks.rank,
            "world_size": ranks.world_size,
            "position": self.position,
        }
        words = ", ".join(f"{name}={value!r}" for name, value in values.items())
        closed = "" if self._finalizer.alive or self._forked else ", closed"
        return without_credentials(f"{type(self).__name__}({source!r}, {words}{closed})")

    @property
    def position(self) -> int:
        """Position of the first bucket of the first step that this rank has not completed.

        Ranks that have completed the same number of steps have the same position.
        """
        return self._start + self._delivered // self._ranks.share * self._ranks.step

    def seek(self, position: int) -> None:
        """Continue from a position. Positions are counted from 0, across epochs.

        The duration of the call does not depend on the position.

        Raises:
            ValueError: the position is negative or at least 2^62, or the reader is closed.
            ForkedReaderError: another process opened the reader.
        """
        if self._forked:
            raise opened_elsewhere()
        if not self._finalizer.alive:
            raise ClosedError()
        if not 0 <= whole_number("position", position) < POSITIONS:
            raise ValueError(f"position is {position}, expected 0 ≤ position < 2^62")
        self._start, self._delivered = position, 0
        self._buckets = self._from_here()

    def state_dict(self) -> dict[str, int | str]:
        """Return the state for a checkpoint. The state is the same on all ranks that have completed
        the same number of steps, and can be loaded at any world size."""
        return {**self._identity, "position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the position of a state that `state_dict` returned.

        Raises:
            StateError: the state is of another dataset, split, seed or version.
        """
        state = state if isinstance(state, Mapping) else {}
        if "version" in state and state["version"] != STATE_VERSION:
            raise StateError(
                f"the reader's state has version {state['version']!r}, "
                f"this thdpack reads version {STATE_VERSION}"
            )
        if missing := {*self._identity, "position"} - set(state):
            raise StateError(f"not a reader's state: no {', '.join(sorted(missing))} in it")
        for key, ours in self._identity.items():
            if state[key] != ours:
                raise StateError(self._mismatch(key, state[key], ours))
        position = state["position"]
        if type(position) is not int or not 0 <= position < POSITIONS:
            raise StateError(
                f"the reader's state has position {position!r}, "
                "expected an integer from 0 to 2^62 - 1"
            )
        self.seek(position)

    def _mismatch(self, key: str, saved: object, ours: int | str) -> str:
        """Return the message about a state whose value of `key` is not this reader's."""
        if key == "manifest":
            return (
                f"the reader's state is of {self.others}: its manifest digest is {saved!r}, and "
                f"that of {self._source} is {ours!r}; the order would not be the same. A dataset's "
                "digest changes when the dataset is rebuilt or gets more variants"
            )
        return (
            f"the reader's state has another {key}: it is {saved!r}, this reader has {ours!r}; the "
            f"order would not be the same: open {self._source} with {key}={saved!r}"
        )

    def close(self) -> None:
        """End the threads and release the shards. Delivered buckets stay valid."""
        self._buckets = _raising(ClosedError())
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def after_fork(self) -> None:
        """Refuse to read in this forked process. The process has no threads of the reader, and
        would repeat the parent's buckets."""
        self._finalizer.detach()  # the finalizer would wait for threads of the parent
        self._forked = True
        self._buckets = self._from_here()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a reader cannot be sent to another process: open it in that process, "
            "with its rank and world_size"
        )

    def _from_here(self) -> Iterator[Bucket]:
        if self._forked:
            return _raising(opened_elsewhere())
        if not self._finalizer.alive:
            return _raising(ClosedError())
        ranks = self._ranks
        repeating = repeating_workers(ranks.world_size)
        if repeating is not None:
            return _raising(repeating)
        frontier = self._frontier()
        return self._endless(frontier + (ranks.group - frontier) % ranks.groups)


def _endless(take: _Take, stride: int, block: int, first: int) -> Iterator[Bucket]:
    while True:
        yield from take(np.arange(first, first + block * stride, stride, dtype=np.int64))
        first += block * stride


def _raising(error: Exception) -> Iterator[Bucket]:
    raise error
    yield
