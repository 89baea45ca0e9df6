"""Process topology: ranks, devices, process groups.

torchrun's environment variables tell each process its rank. Without torchrun the job has a single
process. A single process does not use FSDP2, because FSDP2 costs a fifth of a step on one GPU.
Collectives of training run on NCCL (gloo on CPUs). Checkpoints and the vote on stopping have gloo
groups of their own, because they run at the same time as training.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Literal, NoReturn, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from schemas.text.phrases import plural
from schemas.text.redact import without_credentials
from trainer.config import ComputeOptions
from trainer.distributed.context_parallel import Slices
from trainer.distributed.launch import rank_and_world_size
from trainer.distributed.lost_ranks import Watch
from trainer.distributed.rank_message import leave_error_file
from trainer.distributed.rendezvous import this_start
from trainer.distributed.row_shards import RowShards

_NCCL_GRACE: Final = timedelta(minutes=1)
"""Difference between NCCL's timeout and the timeout of the watch (lost_ranks.py). NCCL's timeout
must be longer, because NCCL ends a process without naming the lost rank.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """Process topology: rank, world size, device, and division of parameters and buckets.

    Ranks that share a bucket (context parallelism) have consecutive numbers. Ranks that share a
    replica of the parameters (HSDP) have consecutive numbers too. All ranks that share a bucket
    belong to the same replica.

    rank: rank of this process in the job.
    world_size: number of ranks in the job.
    device: device of this process.
    checkpoint_group, vote_group: gloo process groups of all ranks.
    timeout: maximum time that a rank waits in a collective.
    watch: detector of lost ranks; None if there is only one rank.
    errors: key-value store in which rank 0 leaves its error for the other ranks (`say_error`); None
        if there is only one rank.
    replicate: number of replicas of the parameters, if FSDP2 shards them.
    slices: division of each bucket over ranks.
    shard: division of parameters and optimizer state among ranks (--shard), with `auto` resolved.
    """

    rank: int
    world_size: int
    device: torch.device
    checkpoint_group: Any
    vote_group: Any
    timeout: timedelta = timedelta(minutes=10)
    watch: Watch | None = None
    errors: Any = None
    replicate: int = 1
    slices: Slices = field(default_factory=Slices)
    shard: Literal["none", "optimizer", "full"] = "full"

    def for_options(self, options: ComputeOptions) -> Self:
        """Return the topology with --replicate and --context-parallel applied. All ranks must call
        this.

        Raises:
            ValueError: see `check_arrangement`.
        """
        check_arrangement(options, self.world_size)
        if options.context_parallel == 1:
            return replace(self, replicate=options.replicate)
        ranks = torch.arange(self.world_size).view(-1, options.context_parallel)
        slices = Slices(
            rank=self.rank % options.context_parallel,
            ranks=options.context_parallel,
            group=self._group(ranks),
        )
        return replace(self, replicate=options.replicate, slices=slices)

    def _group(self, ranks: Tensor) -> Any:
        """Create a process group for each row of `ranks`, and return the group of this rank. All
        ranks must call this.
        """
        return dist.new_subgroups_by_enumeration(ranks.tolist(), timeout=self.timeout)[0]

    def mesh(self) -> DeviceMesh:
        """Return the device mesh with the dimensions (replicate, shard), or only (shard) if there
        is one replica. All ranks must call this.
        """
        if self.replicate == 1:
            return init_device_mesh(self.device.type, (self.world_size,), mesh_dim_names=("shard",))
        copies = torch.arange(self.world_size).view(self.replicate, -1)
        groups = [self._group(copies.T), self._group(copies)]
        return DeviceMesh.from_group(
            groups, self.device.type, mesh=copies, mesh_dim_names=("replicate", "shard")
        )

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def is_sharded(self) -> bool:
        """True if FSDP2 shards the parameters."""
        return self.world_size > 1 and self.shard == "full"

    @property
    def is_replicated(self) -> bool:
        """True if each of several ranks holds all parameters."""
        return self.world_size > 1 and self.shard != "full"

    def row_shards(self) -> RowShards:
        """Return the division of the optimizer's work among ranks. All ranks must call this."""
        if not (self.is_replicated and self.shard == "optimizer"):
            return RowShards(world_size=self.world_size)
        return RowShards(
            rank=self.rank, ranks=self.world_size, world_size=self.world_size, mesh=self.mesh()
        )

    @property
    def data_ranks(self) -> int:
        """Number of ranks that read different buckets. Ranks that share a bucket count once."""
        return self.world_size // self.slices.ranks

    @property
    def data_rank(self) -> int:
        return self.rank // self.slices.ranks

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all ranks, in place, and return it."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def watching(self) -> AbstractContextManager[None]:
        """Return a context in which a failed collective raises LostRankError. The message of the
        error names the ranks that do not answer.
        """
        return self.watch.over() if self.watch else nullcontext()

    def exit_process(self, code: int) -> NoReturn:
        """End this process after an error.

        If there are several ranks, the process ends without clean-up: process groups and threads
        would wait for other ranks, which in turn wait for this rank.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        leave_error_file()  # even for a single process, because torchrun may have started it
        if self.world_size > 1:
            os._exit(code)
        sys.exit(code)

    def broadcast_from_main(self, tensor: Tensor) -> Tensor:
        """Return rank 0's tensor, copied to the device of each rank. On other ranks, only shape and
        dtype of `tensor` are used.
        """
        on_device = (
            tensor.to(self.device) if self.is_main else torch.empty_like(tensor, device=self.device)
        )
        if self.world_size > 1:
            dist.broadcast(on_device, src=0)
        return on_device


def check_arrangement(options: ComputeOptions, world_size: int) -> None:
    """Check that --replicate and --context-parallel divide the ranks evenly.

    Raises:
        ValueError: the ranks do not divide evenly. The message names the option to change.
    """
    if world_size % options.replicate:
        raise ValueError(
            f"--replicate is {options.replicate}, but this run has {plural(world_size, 'rank')}: "
            "the number of ranks must be a multiple of the number of replicas"
        )
    if world_size % options.context_parallel:
        raise ValueError(
            f"--context-parallel is {options.context_parallel}, but this run has "
            f"{plural(world_size, 'rank')}: the number of ranks must be a multiple of "
            "--context-parallel"
        )
    of_a_copy = world_size // options.replicate
    if of_a_copy % options.context_parallel:
        raise ValueError(
            f"with --replicate {options.replicate}, each replica of the parameters has "
            f"{plural(of_a_copy, 'rank')}, not a multiple of --context-parallel "
            f"{options.context_parallel}: change --replicate or --context-parallel"
        )


def single_process(device: torch.device) -> Topology:
    """Return the topology of one process without process groups. This topology supports neither
    checkpoints nor votes.
    """
    return Topology(rank=0, world_size=1, device=device, checkpoint_group=None, vote_group=None)


def _joined(timeout: timedelta) -> Topology:
    """Join the job that torchrun started, or form a job of one process."""
    rank, world_size = rank_and_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    store: Any = dist.HashStore()
    if world_size > 1:
        store = this_start(
            next(iter(dist.rendezvous("env://")))[0], rank, world_size, timeout=timeout
        )
    on_gpus = world_size > 1 and device.type == "cuda"
    of_collectives = timeout + _NCCL_GRACE if on_gpus else timeout
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpus else "gloo",
        store=dist.PrefixStore("training", store),
        rank=rank,
        world_size=world_size,
        timeout=of_collectives,
        device_id=device if on_gpus else None,
    )
    watch = None
    if world_size > 1:
        group = dist.new_group(backend="gloo", timeout=timeout)
        watch = Watch(dist.PrefixStore("watch", store), group, rank, world_size)
    return Topology(
        rank=rank,
        world_size=world_size,
        device=device,
        timeout=of_collectives,
        checkpoint_group=dist.new_group(backend="gloo"),
        vote_group=dist.new_group(backend="gloo", timeout=timeout),
        watch=watch,
        errors=dist.PrefixStore("errors", store) if world_size > 1 else None,
    )


@contextmanager
def process_group(*, timeout_minutes: float = 10.0) -> Iterator[Topology]:
    """Join the job that torchrun started, or form a job of one process. Leave the job at the end of
    the context.

    Args:
        timeout_minutes: maximum time that ranks wait for each other in training. For checkpoints
            the maximum is half an hour.
    """
    topology = _joined(timedelta(minutes=timeout_minutes))
    watch = topology.watch
    try:
        if watch:
            watch.start()
        yield topology
        if watch:
            watch.stop()
    except BaseException:
        # torchrun ends all ranks when a rank exits. `exit_process` explains os._exit.
        if topology.world_size > 1:
            sys.stderr.write(without_credentials(traceback.format_exc()))
            sys.stderr.flush()
            os._exit(1)
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()
