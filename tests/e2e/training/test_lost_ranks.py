"""If a rank is killed or hangs, all other ranks name this rank and no other rank."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.processes.ranks import Job
from tests.helpers.processes.runs import await_step, start

HANGS = "0.25" if "THDPACK_LONG" in os.environ else "0.1"
"""Time in minutes after which a rank that does not answer counts as lost."""
ARRANGEMENTS = (
    (),
    ("--shard", "full"),
    ("--replicate", "2"),
    ("--context-parallel", "2"),
    ("--reshard", "step"),
)
SAVING = ("--checkpoint-every", "1", "--validate-every", "0")
"""Options that write a checkpoint at every step, so that ranks are also lost during a save."""


@dataclass(frozen=True)
class Loss:
    """Loss of a rank: the test sends signal `number` to rank `victim` after step `step`."""

    victim: int
    number: signal.Signals
    step: int
    flags: tuple[str, ...]
    ranks: int

    @property
    def hangs(self) -> bool:
        return self.number == signal.SIGSTOP


def lose(data: Path, out: Path, loss: Loss) -> None:
    """Start ranks, kill or stop one of them, wait until the others have ended, and check their
    messages.
    """
    # a timeout detects a rank that hangs; closed connections reveal a dead rank
    minutes = HANGS if loss.hangs else "10"
    options = ("--buckets-per-step", str(loss.ranks), "--timeout-minutes", minutes, *loss.flags)
    with start(data, out, *options, ranks=loss.ranks, steps=100_000) as job:
        await_step(job, out, loss.step)
        job.ranks[loss.victim].send(loss.number)
        others = [rank for number, rank in enumerate(job.ranks) if number != loss.victim]
        assert [rank.wait() for rank in others] == [1] * len(others), job.said
    check_said(job, loss.victim)


def check_said(job: Job, victim: int) -> None:
    said = [line for line in job.said.splitlines() if "not answer" in line]
    names = ["thdpack train", *(f"thdpack train, rank {rank}" for rank in range(1, len(job.ranks)))]
    assert sorted(line.partition(":")[0] for line in said) == [
        name for rank, name in enumerate(names) if rank != victim
    ], job.said
    assert all(f": rank {victim} does not answer" in line for line in said), job.said


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep this number of cores busy until the context ends."""
    with ExitStack() as stack:
        for _ in range(loops):
            process = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", "while True: pass"])
            )
            stack.callback(process.kill)
        yield


def lose_all(data: Path, folder: Path, losses: list[Loss], *, at_once: int) -> None:
    with ThreadPoolExecutor(at_once) as pool:
        for _ in pool.map(
            lambda numbered: lose(data, folder / str(numbered[0]), numbered[1]), enumerate(losses)
        ):
            pass


@pytest.mark.long
def test_every_surviving_rank_names_the_lost_rank_and_no_other_rank(
    many_shards: Path, tmp_path: Path
) -> None:
    losses = [
        Loss(1, signal.SIGKILL, 3, SAVING, ranks=3),
        Loss(2, signal.SIGSTOP, 1, ("--replicate", "3"), ranks=3),
    ]
    lose_all(many_shards, tmp_path, losses, at_once=2)


WAITING = """
import sys, time
from pathlib import Path
from trainer.distributed.topology import process_group
with process_group(timeout_minutes=float(sys.argv[2])) as topology:
    Path(sys.argv[1], str(topology.rank)).touch()
    time.sleep(600)
"""
"""Python source code of ranks that take part in no collective, as if they waited for their GPUs."""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_waits_outside_of_collectives_names_the_lost_rank(
    tmp_path: Path, number: signal.Signals
) -> None:
    minutes = "10" if number == signal.SIGKILL else HANGS
    with Job(WAITING, [str(tmp_path), minutes], ranks=3) as job:
        while len(list(tmp_path.iterdir())) < 3 and job.poll() is None:
            time.sleep(0.01)
        job.ranks[1].send(number)
        assert [job.ranks[rank].wait() for rank in (0, 2)] == [1, 1], job.said
    check_said(job, 1)


@pytest.mark.skipif("THDPACK_LONG" not in os.environ, reason="takes minutes; set THDPACK_LONG=1")
@pytest.mark.timeout(1800)
def test_fifty_lost_ranks_under_load_are_all_named(many_shards: Path, tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("THDPACK_TEST_SEED", "0")))
    losses = [
        Loss(
            chance.randrange(4),
            chance.choice([signal.SIGKILL, signal.SIGSTOP]),
            chance.randrange(1, 13),
            (*chance.choice(ARRANGEMENTS), *chance.choice([SAVING, ()])),
            ranks=4,
        )
        for _ in range(50)
    ]
    with busy(4):
        lose_all(many_shards, tmp_path, losses, at_once=3)
