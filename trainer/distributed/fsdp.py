"""Sharded parameters (FSDP2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from trainer.config import Reshard
from trainer.distributed.topology import Topology


def shard_parameters(
    model: nn.Module,
    topology: Topology,
    *,
    compute_dtype: torch.dtype,
    reshard: Reshard,
    gather_ahead: int,
) -> None:
    """Shard parameters, gradients and optimizer state over the ranks of each replica (copy of the
    parameters), if `topology.is_sharded`. The parameters of a layer are gathered before the layer
    computes.

    Gradients are reduced in fp32. Gradients are summed, not averaged, because the optimizer divides
    by the number of predicted tokens in the global batch. Forward inputs are not cast, because the
    angles of rotary embeddings must not become bf16.

    Args:
        compute_dtype: dtype of the gathered parameters.
        reshard, gather_ahead: values of the options --reshard and --gather-ahead.
    """
    if not topology.is_sharded:
        return
    mesh = topology.mesh()
    policy = MixedPrecisionPolicy(
        param_dtype=compute_dtype, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    blocks: Any = model.layers
    layers: list[Any] = list(blocks)
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard == "layer")
    fully_shard(model, mesh=mesh, mp_policy=policy)
    for i, layer in enumerate(layers):
        layer.set_modules_to_forward_prefetch(layers[i + 1 : i + 1 + gather_ahead])
        layer.set_modules_to_backward_prefetch(layers[max(0, i - gather_ahead) : i][::-1])
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            # FSDP2 would otherwise use a pre-multiplied sum, which gloo does not have.
            module.set_force_sum_reduction_for_comms(True)


def set_gradient_sync(model: nn.Module, *, last: bool) -> None:
    """Set whether the next backward pass of a sharded model reduces gradients and frees gathered
    parameters. With `--reshard step`, only the last backward pass of a step does so.
    """
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(last)
    model.set_reshard_after_backward(last)


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor assembled from the shards of all ranks. All ranks must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
