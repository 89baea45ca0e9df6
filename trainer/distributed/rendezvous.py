"""Rendezvous: whenever a job starts or restarts, its ranks agree on a random prefix for their keys
in torchrun's store.

Ranks need the prefix because the store may hold keys of an earlier start. torchrun's count of
restarts cannot be the prefix, because this count differs between nodes.

1. Each rank except rank 0 sets `hello/RANK` to a random number.
2. Rank 0 answers in `welcome/RANK` with this number and the prefix.
3. Rank RANK recognizes its number, and increments `joined/PREFIX`.
4. Rank 0 waits until all ranks have joined.
"""

from __future__ import annotations

import secrets
import time
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

_EVERY_SECONDS: Final = 0.02
JOIN_MINUTES: Final = 10.0
"""Minimum timeout of the rendezvous. --timeout-minutes is for running ranks, and may be too short
for a start: importing torch takes seconds on an idle machine, and minutes on a busy machine or over
a network file system.
"""


def this_start(store: Any, rank: int, world_size: int, *, timeout: timedelta) -> Any:
    """Agree on a prefix. Return a view of the store that holds only keys with this prefix.

    Args:
        timeout: maximum time to wait for the other ranks; at least JOIN_MINUTES.
    Raises:
        DistNetworkError: a rank has not joined within that time.
    """
    deadline = time.monotonic() + max(timeout, timedelta(minutes=JOIN_MINUTES)).total_seconds()
    name = _name_it(store, world_size, deadline) if rank == 0 else _ask(store, rank, deadline)
    return dist.PrefixStore(f"start/{name}", store)


def _name_it(store: Any, world_size: int, deadline: float) -> str:
    name, answered = secrets.token_hex(8), dict[int, bytes]()
    store.add(f"joined/{name}", 0)
    while store.add(f"joined/{name}", 0) < world_size - 1:
        for rank in range(1, world_size):
            if store.check([f"hello/{rank}"]):
                # The number may be from an earlier start. Then `rank` sets a new number later.
                hello = store.get(f"hello/{rank}")
                if answered.get(rank) != hello:
                    answered[rank] = hello
                    store.set(f"welcome/{rank}", hello.decode() + " " + name)
        _wait(
            deadline,
            f"{world_size - 1 - store.add(f'joined/{name}', 0)} of {world_size} ranks did not join",
        )
    return name


def _ask(store: Any, rank: int, deadline: float) -> str:
    mine = secrets.token_hex(8)
    store.set(f"hello/{rank}", mine)
    while True:
        if store.check([f"welcome/{rank}"]):
            whose, _, name = store.get(f"welcome/{rank}").decode().partition(" ")
            if whose == mine:
                store.add(f"joined/{name}", 1)
                return str(name)
        _wait(deadline, "rank 0 did not join")


def _wait(deadline: float, otherwise: str) -> None:
    if time.monotonic() > deadline:
        limit = f"the larger of --timeout-minutes and {JOIN_MINUTES:.0f} minutes"
        raise dist.DistNetworkError(f"{otherwise} within {limit}")
    time.sleep(_EVERY_SECONDS)
