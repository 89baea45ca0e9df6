"""The trainer on several ranks (gloo). All topologies give the same losses, also after a resume."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.helpers.processes.ranks import Job
from tests.helpers.processes.runs import (
    EACH,
    EVERY,
    ROUNDING,
    arguments,
    await_step,
    cut,
    losses,
    start,
    torchrun,
    train,
)

LONG = "THDPACK_LONG" in os.environ
ON_TWO: tuple[tuple[str, ...], ...] = (
    ("--reshard", "micro-batch", "--gather-ahead", "2"),
    ("--reshard", "step"),
    ("--replicate", "2"),
    ("--shard", "none"),
    ("--shard", "optimizer"),
    *((("--reshard", "layer"), ("--context-parallel", "2")) if LONG else ()),
)
ON_FOUR: tuple[tuple[str, ...], ...] = (
    ("--replicate", "2", "--context-parallel", "2", "--reshard", "layer"),
    *(
        (
            (),
            ("--shard", "optimizer"),
            ("--shard", "full"),
            ("--replicate", "2"),
            ("--replicate", "4"),
            ("--context-parallel", "4", "--recompute", "full"),
        )
        if LONG
        else ()
    ),
)
"""Topologies of two and of four ranks. They cover sharding, replication and context parallelism.
THDPACK_LONG adds more."""
SHORT = EVERY
"""Number of steps of each topology's run."""
WARM = (
    *("--buckets-per-step", "4", "--warmup-steps", "2"),
    *("--checkpoint-every", "2", "--validate-every", "2"),
)
"""Options of these runs. On two ranks, each rank has two micro-batches per step. A checkpoint is
written halfway."""
DIVIDED = f"""
import trainer.distributed.row_shards as row_shards
row_shards.SMALLEST = 1  # the matrices of this test's model are small
{EACH}
"""

EXCHANGE = """
import sys, torch
from trainer.config import ComputeOptions
from trainer.distributed.context_parallel import shares
from trainer.distributed.topology import process_group
with process_group() as everyone:
    for ranks in (2, 4):
        slices = everyone.for_options(ComputeOptions(context_parallel=ranks)).slices
        for heads in (4, 5, 7):
            each = shares(heads, ranks)
            assert sum(each) == heads and max(each) - min(each) <= 1
            first = sum(each[: slices.rank])
            mine = slice(first, first + slices.heads(heads))
            generator = torch.Generator().manual_seed(heads)
            whole = torch.randn(8 * ranks, heads, 3, 2, generator=generator)
            part = slices.own(whole).clone().requires_grad_()
            turned = slices.to_heads(part)
            assert torch.equal(turned, whole[:, mine])
            assert torch.equal(slices.to_tokens(turned, heads), part)
            weights = torch.randn(whole.shape, generator=torch.Generator().manual_seed(1))
            (turned * weights[:, mine]).sum().backward()
            assert torch.equal(part.grad, slices.own(weights))
            back = whole[:, mine].clone().requires_grad_()
            (slices.to_tokens(back, heads) * slices.own(weights)).sum().backward()
            assert torch.equal(back.grad, weights[:, mine])
"""


def test_the_context_parallel_exchange_is_exact_for_any_number_of_heads() -> None:
    Job(EXCHANGE, [], ranks=4).finish()


def arranged(
    data: Path,
    out: Path,
    ranks: int,
    arrangements: tuple[tuple[str, ...], ...],
    program: str = EACH,
) -> list[Path]:
    """Run several topologies one after another in the same processes; return the runs' folders."""
    runs = [out / str(number) for number in range(len(arrangements))]
    each = [
        arguments(data, run, *flags, *WARM, steps=SHORT)
        for run, flags in zip(runs, arrangements, strict=True)
    ]
    Job(program, [json.dumps(each)], ranks=ranks).finish()
    return runs


def check_equal(run: Path, whole: Path) -> None:
    for kind in ("train", "valid"):
        found, expected = losses(run, kind), losses(whole, kind)
        assert found.keys() == expected.keys()
        assert max(abs(found[step] - expected[step]) for step in expected) < ROUNDING


@pytest.mark.parametrize(("ranks", "arrangements"), [(2, ON_TWO), (4, ON_FOUR)], ids=["2", "4"])
def test_all_topologies_give_the_same_losses(
    many_shards: Path, tmp_path: Path, ranks: int, arrangements: tuple[tuple[str, ...], ...]
) -> None:
    """Sharded, replicated and context-parallel runs have the same buckets, masks and losses as a
    run on one rank."""
    one = train(many_shards, tmp_path / "one", *WARM, steps=SHORT)
    alone = [json.loads(line) for line in (one / "metrics.jsonl").read_text().splitlines()]
    for run, flags in zip(
        arranged(many_shards, tmp_path, ranks, arrangements), arrangements, strict=True
    ):
        check_equal(run, one)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for name in ("tokens", "overflow", "grad_norm"):
            there, expected = (
                [line[name] for line in each if line["kind"] == "train"] for each in (lines, alone)
            )
            # Rounding changes norms ten times as much as losses. Double counting would change norms
            # by 0.4.
            assert there == pytest.approx(expected, rel=10 * ROUNDING), (flags, name)


def test_muon_gives_the_same_losses_in_all_topologies_and_resumes_in_another(
    many_shards: Path, tmp_path: Path
) -> None:
    muon = ("--optimizer", "muon")
    one = train(many_shards, tmp_path / "one", *WARM, *muon, steps=SHORT)
    adamw = train(many_shards, tmp_path / "adamw", *WARM, steps=SHORT)
    assert losses(one, "valid") != losses(adamw, "valid")
    shards = ("none", "optimizer", "full")
    arrangements = tuple((*muon, "--shard", shard) for shard in shards)
    runs = arranged(many_shards, tmp_path, 2, arrangements, DIVIDED)
    for run in runs:
        check_equal(run, one)
    for before, shard in zip(runs, (*shards[1:], shards[0]), strict=True):
        out = cut(before, tmp_path / f"resumed-{shard}", 2)
        each = [arguments(many_shards, out, *muon, "--shard", shard, *WARM, steps=SHORT)]
        Job(DIVIDED, [json.dumps(each)], ranks=2).finish()
        check_equal(out, one)


def test_a_run_resumes_in_any_topology(many_shards: Path, whole: Path, tmp_path: Path) -> None:
    """Each run resumes from a checkpoint of the previous run."""
    before = whole
    for step, ranks, flags in (
        (8, 2, ("--shard", "optimizer")),
        (10, 2, ("--shard", "full")),
        *(((11, 4, ("--replicate", "2", "--context-parallel", "2")),) if LONG else ()),
        (12, 2, ("--shard", "none")),
        (14, 1, ()),
    ):
        out = cut(before, tmp_path / str(step), step)
        start(many_shards, out, *flags, "--checkpoint-every", "1", ranks=ranks).finish()
        check_equal(out, whole)
        before = out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--replicate", "2"), "--replicate is 2, but this run has 1 rank: the number"),
        (("--context-parallel", "3"), "--context-parallel is 3, but this run has 1 rank: the"),
        (("--replicate", "0"), "--replicate is 0, expected at least 1"),
    ],
)
def test_invalid_topologies_are_refused(
    many_shards: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    said: str,
) -> None:
    with pytest.raises(SystemExit) as stopped:
        train(many_shards, tmp_path / "run", *flags)
    assert stopped.value.code in (1, 2)
    assert said in re.sub(r"\s+", " ", capsys.readouterr().err)


def test_the_first_line_of_a_run_names_the_number_of_replicas(
    many_shards: Path, tmp_path: Path
) -> None:
    words = ("--replicate", "2", "--dry-run")
    said = start(many_shards, tmp_path / "run", *words, ranks=2, steps=1).finish()
    assert "fp32, 2 × CPU, 2 replicas of the model · " in said
    assert "no warm-up, because the run has 1 step; --warmup-steps overrides" in said


def test_reshard_together_with_shard_none_is_refused_only_on_several_ranks(
    many_shards: Path, tmp_path: Path
) -> None:
    flags = ("--reshard", "step", "--shard", "none")
    with start(many_shards, tmp_path / "two", *flags, ranks=2, steps=1) as job:
        assert job.wait() == 2
    assert "--reshard is for sharded parameters, but --shard is none" in job.said
    one = train(many_shards, tmp_path / "one", *flags, steps=1)
    assert set(losses(one)) == {1}


def workers(agent: Job) -> list[int]:
    """Return the ids of the processes that a torchrun started."""
    return [int(pid) for pid in subprocess.check_output(["pgrep", "-P", str(agent.pid)]).split()]


@pytest.mark.long
def test_torchrun_restarts_a_run_after_a_rank_is_killed_and_the_losses_stay_the_same(
    many_shards: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    # rendezvous of the two nodes
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meet = (
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        f"127.0.0.1:{store.port}",
        "--rdzv-conf",
        "is_host=0",
    )
    flags = ("--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "2", *meet)
    nodes = [torchrun(many_shards, out, flags=flags, forks=True) for _ in range(2)]
    await_step(nodes[0], out, 6)
    while nodes[0].poll() is None and not (out / "checkpoints" / "latest").exists():
        time.sleep(0.005)
    os.kill(
        workers(nodes[1])[0], signal.SIGKILL
    )  # only this node's torchrun uses up one of its --max-restarts
    said = "".join(node.finish() for node in nodes)
    assert re.search(r"train(, rank 1)?: (rank [01]|the node of rank 0) does not answer\W ", said)
    assert re.search(r"resuming from step (4|8|12)", said)
    check_equal(out, whole)
