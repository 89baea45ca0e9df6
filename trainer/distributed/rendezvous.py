"""Rendezvous: ranks agree on the start of the job that they belong to.

torchrun's store may outlive earlier starts, and its count of restarts differs between nodes.
"""

from __future__ import annotations

import secrets
import time
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

_EVERY_SECONDS: Final = 0.02
JOIN_MINUTES: Final = 10.0
"""Shortest time that ranks wait for each other to start. It does not depend on --timeout-minutes,
which is for running ranks: importing torch takes seconds on an idle machine, and minutes on a busy
one or over a network file system.
"""


def this_start(store: Any, rank: int, world_size: int, *, timeout: timedelta) -> Any:
    """Return the store, under a prefix that belongs to this start of the job.

    Rank 0 draws the prefix. Every other rank draws a random number, by which it recognises the
    answer to its own request.

    Args:
        timeout: longest time that running ranks wait for each other. Starting ranks have at least
            JOIN_MINUTES.
    Raises:
        DistNetworkError: ranks are missing for longer than that.
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
                # This may be the greeting of an earlier start; then another one follows.
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
