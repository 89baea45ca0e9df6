"""Processes, devices and FSDP2. One process is the ordinary case with nothing wrapped: FSDP2 costs a fifth of a step on one GPU.

Under torchrun the environment says who we are; without it we are alone. Collectives of training run on NCCL (gloo on CPUs);
checkpoints and the vote on stopping have gloo groups of their own, for they run beside training.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallel:
    """Who we are among how many, and where we compute.

    checkpoint_group, vote_group: gloo process groups of all ranks.
    """

    rank: int
    world_size: int
    device: torch.device
    checkpoint_group: Any
    vote_group: Any

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """The tensor, summed in place over all ranks."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def leave(self, code: int) -> NoReturn:
        """End this process after an error. Among others, at once: groups and threads would wait for ranks that wait for us."""
        sys.stdout.flush()
        sys.stderr.flush()
        if self.world_size > 1:
            os._exit(code)
        sys.exit(code)

    def from_main(self, tensor: Tensor) -> Tensor:
        """Rank 0's tensor, on all ranks' devices; the others' give shape and dtype."""
        there = tensor.to(self.device) if self.is_main else torch.empty_like(tensor, device=self.device)
        if self.world_size > 1:
            dist.broadcast(there, src=0)
        return there

    def shard(self, model: nn.Module, *, compute_dtype: torch.dtype) -> None:
        """Shard a model's parameters, and with them gradients and optimizer state, over all ranks; each layer is gathered as it is used.

        Gradients are reduced in fp32 and summed, not averaged: the loss is normalised over the global batch, by the optimizer.
        Forward inputs are not cast: the angles of rotary embeddings would become bf16.
        """
        if self.world_size == 1:
            return
        mesh = init_device_mesh(self.device.type, (self.world_size,))
        policy = MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
        for layer in model.layers:  # type: ignore[union-attr]
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # gloo knows no pre-multiplied sum


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """A tensor put together from all ranks' parts; all ranks have to ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def alone(device: torch.device) -> Parallel:
    """For who needs no process group: no checkpoints, no votes."""
    return Parallel(rank=0, world_size=1, device=device, checkpoint_group=None, vote_group=None)


@contextmanager
def processes() -> Iterator[Parallel]:
    """Join the job that torchrun started, or be one of one; leave it at the end."""
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world_size == 1:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    elif device.type == "cuda":
        dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    groups = [dist.new_group(backend="gloo") for _ in range(2)]
    try:
        yield Parallel(rank=rank, world_size=world_size, device=device, checkpoint_group=groups[0], vote_group=groups[1])
    except BaseException:
        if world_size > 1:  # see `leave`; torchrun ends all when one exits
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()
