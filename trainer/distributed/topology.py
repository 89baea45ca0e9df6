"""Processes, devices and FSDP2. One process is the ordinary case with nothing wrapped: FSDP2 costs a fifth of a step on one GPU.

Under torchrun the environment says who we are; without it we are alone. Collectives of training run on NCCL (gloo on CPUs);
checkpoints and the vote on stopping have gloo groups of their own, for they run beside training.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, NoReturn, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from schemas.redact import without_credentials
from trainer.config import ComputeOptions, Reshard
from trainer.distributed.context_parallel import Slices
from trainer.distributed.lost_ranks import Watch
from trainer.distributed.rendezvous import this_start

_NCCL_GRACE: Final = timedelta(minutes=1)
"""NCCL ends a process without asking who is lost: the watch comes first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """Who we are among how many, and where we compute.

    Ranks that share a bucket (context parallelism) are neighbours, and so are those that share a copy of the parameters, which are more or the same.

    checkpoint_group, vote_group: gloo process groups of all ranks. timeout: longest that ranks wait for each other. watch: over the other ranks, if there are
    any. replicate: copies of the parameters. slices: of each bucket, over ranks.
    """

    rank: int
    world_size: int
    device: torch.device
    checkpoint_group: Any
    vote_group: Any
    timeout: timedelta = timedelta(minutes=10)
    watch: Watch | None = None
    replicate: int = 1
    slices: Slices = field(default_factory=Slices)

    def for_options(self, options: ComputeOptions) -> Self:
        """The same ranks, divided as the options say. To be called by all ranks.

        Raises:
            ValueError: they cannot be; says what to change.
        """
        check_arrangement(options, self.world_size)
        if options.context_parallel == 1:
            return replace(self, replicate=options.replicate)
        together = torch.arange(self.world_size).view(-1, options.context_parallel)
        slices = Slices(
            rank=self.rank % options.context_parallel,
            ranks=options.context_parallel,
            group=self._group(together),
        )
        return replace(self, replicate=options.replicate, slices=slices)

    def _group(self, ranks: Tensor) -> Any:
        """This rank's process group; each row of `ranks` is one. To be called by all ranks."""
        return dist.new_subgroups_by_enumeration(ranks.tolist(), timeout=self.timeout)[0]

    def _mesh(self) -> DeviceMesh:
        """(replicate, shard), or (shard) alone where there is one copy."""
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
    def data_ranks(self) -> int:
        """How many read buckets of their own: ranks, or groups that share a bucket."""
        return self.world_size // self.slices.ranks

    @property
    def data_rank(self) -> int:
        return self.rank // self.slices.ranks

    def sum_(self, tensor: Tensor) -> Tensor:
        """The tensor, summed in place over all ranks."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def watching(self) -> AbstractContextManager[None]:
        """Where a collective fails, LostRankError says which ranks do not answer."""
        return self.watch.over() if self.watch else nullcontext()

    def exit_process(self, code: int) -> NoReturn:
        """End this process after an error. Among others, at once: groups and threads would wait for ranks that wait for us."""
        sys.stdout.flush()
        sys.stderr.flush()
        if self.world_size > 1:
            os._exit(code)
        sys.exit(code)

    def broadcast_from_main(self, tensor: Tensor) -> Tensor:
        """Rank 0's tensor, on all ranks' devices; the others' give shape and dtype."""
        there = (
            tensor.to(self.device) if self.is_main else torch.empty_like(tensor, device=self.device)
        )
        if self.world_size > 1:
            dist.broadcast(there, src=0)
        return there

    def shard(
        self, model: nn.Module, *, compute_dtype: torch.dtype, reshard: Reshard, gather_ahead: int
    ) -> None:
        """Shard a model's parameters, and with them gradients and optimizer state, over the ranks of each copy; each layer is gathered as it is used.

        Gradients are reduced in fp32 and summed, not averaged: the loss is normalised over the global batch, by the optimizer.
        Forward inputs are not cast: the angles of rotary embeddings would become bf16.

        Args:
            reshard, gather_ahead: as the options say.
        """
        if self.world_size == 1:
            return
        mesh = self._mesh()
        policy = MixedPrecisionPolicy(
            param_dtype=compute_dtype, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
        blocks: Any = model.layers
        layers: list[Any] = list(blocks)
        for layer in layers:
            fully_shard(
                layer, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard == "layer"
            )
        fully_shard(model, mesh=mesh, mp_policy=policy)
        for i, layer in enumerate(layers):
            layer.set_modules_to_forward_prefetch(layers[i + 1 : i + 1 + gather_ahead])
            layer.set_modules_to_backward_prefetch(layers[max(0, i - gather_ahead) : i][::-1])
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # gloo knows no pre-multiplied sum


def check_arrangement(options: ComputeOptions, world_size: int) -> None:
    """Raises: ValueError, if so many ranks cannot be divided as the options say; tells what to change."""
    if world_size % options.replicate:
        raise ValueError(
            f"{world_size} ranks do not divide into --replicate {options.replicate} copies of the parameters: change either"
        )
    if world_size % options.context_parallel:
        raise ValueError(
            f"{world_size} ranks do not divide into groups of --context-parallel {options.context_parallel}: change either"
        )
    of_a_copy = world_size // options.replicate
    if of_a_copy % options.context_parallel:
        raise ValueError(
            f"--replicate {options.replicate} leaves {of_a_copy} ranks to a copy of the parameters, no multiple of "
            f"--context-parallel {options.context_parallel}, whose ranks have to be of one copy: change either"
        )


def set_gradient_sync(model: nn.Module, *, last: bool) -> None:
    """Keep gathered parameters and unreduced gradients over a sharded model's next backward pass, unless it is the step's last."""
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(last)
    model.set_reshard_after_backward(last)


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor put together from all ranks' parts; all ranks have to ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def single_process(device: torch.device) -> Topology:
    """For who needs no process group: no checkpoints, no votes."""
    return Topology(rank=0, world_size=1, device=device, checkpoint_group=None, vote_group=None)


@contextmanager
def process_group(*, timeout_minutes: float = 10.0) -> Iterator[Topology]:
    """Join the job that torchrun started, or be one of one; leave it at the end.

    Args:
        timeout_minutes: longest that ranks wait for each other in training. Checkpoints have half an hour.
    """
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    timeout = timedelta(minutes=timeout_minutes)
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
    groups = {
        "checkpoint_group": dist.new_group(backend="gloo"),
        "vote_group": dist.new_group(backend="gloo", timeout=timeout),
    }
    watch = Watch(dist.PrefixStore("watch", store), rank, world_size) if world_size > 1 else None
    try:
        if watch:
            watch.start()
        yield Topology(
            rank=rank,
            world_size=world_size,
            device=device,
            timeout=of_collectives,
            watch=watch,
            **groups,
        )
        if watch:
            watch.stop()
    except BaseException:
        if world_size > 1:  # see `leave`; torchrun ends all when one exits
            sys.stderr.write(without_credentials(traceback.format_exc()))
            sys.stderr.flush()
            os._exit(1)
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()
