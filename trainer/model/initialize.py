"""Build a model: on the meta device, then sharded, then given values that depend only on the seed
and the name of a tensor.

Each tensor is drawn whole, on its device, and then sharded. If each shard were drawn separately,
values would depend on the number of ranks. The largest tensor of the 15B model briefly takes 0.4
GB.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import xxhash
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from trainer import precision
from trainer.config import ComputeOptions
from trainer.distributed.context_parallel import Slices
from trainer.distributed.topology import Topology
from trainer.model.esm2 import INIT_STD, VOCABULARY, Esm2, rope_frequencies


def build(options: ModelOptions, compute: ComputeOptions, slices: Slices | None = None) -> Esm2:
    """Return a model without values, on the meta device.

    Args:
        compute: its backend is te or torch.
        slices: division of rows over ranks.
    Raises:
        ImportError: backend te without Transformer Engine or without a GPU.
    """
    if compute.backend == "te":
        from trainer.model import layer_te as layer
    else:
        from trainer.model import layer_torch as layer  # type: ignore[no-redef]  # a choice of one
    with torch.device("meta"):
        model = Esm2(options, compute, layer, slices or Slices())
    if compute.compile:
        for block in model.layers:
            block.compile()
    return model


def draw(
    name: str, shape: torch.Size, options: ModelOptions, *, seed: int, device: torch.device
) -> Tensor:
    """Return the initial value of a tensor, float32: matrices N(0, 0.02²), norms 1, biases 0, and 0
    for padding and for tokens that do not exist.
    """
    if name == "inv_freq":
        return rope_frequencies(options.head_size).to(device)
    if name.endswith(("norm_weight", "norm.weight")):
        return torch.ones(shape, device=device)
    if len(shape) < 2 or name.startswith("contact_head"):
        return torch.zeros(shape, device=device)
    generator = torch.Generator(device).manual_seed(
        xxhash.xxh3_64_intdigest(f"{seed} {name}".encode()) >> 1
    )
    value = torch.empty(shape, device=device).normal_(0.0, INIT_STD, generator=generator)
    if name == "embedding":
        value[VOCABULARY:] = 0.0
        value[ESM2.pad] = 0.0
    return value


@torch.no_grad()
def fill(
    model: Esm2, values: Mapping[str, Tensor], *, seed: int, topology: Topology
) -> dict[str, Tensor]:
    """Move a model from the meta device to the device of `topology`, and give it values.

    Args:
        values: imported tensors by name, float32, whole, on rank 0, which sends them to the others.
            All other tensors are drawn.
    Returns:
        fp32 values of all parameters that have another dtype, by name, sharded like them: the
            initial masters of an optimizer.
    """
    device = topology.device
    model.to_empty(device=device)
    precision.quantize_parameters(model)
    masters = {}
    for name, tensor in model.named_tensors():
        whole = (
            topology.broadcast_from_main(values[name])
            if name in values
            else draw(name, tensor.shape, model.options, seed=seed, device=device)
        )
        if isinstance(tensor, DTensor):
            whole = distribute_tensor(
                whole, tensor.device_mesh, tensor.placements, src_data_rank=None
            )
        tensor.copy_(whole)
        if tensor.dtype != torch.float32:
            masters[name] = whole
    return masters
