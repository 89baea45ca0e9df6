"""Build and initialize a model:
1. `build` builds the model on the meta device.
2. The caller shards the model.
3. `fill` allocates the model on the device, and sets values.

The random values of a tensor depend only on the seed and the name of the tensor. Each rank draws
whole tensors, one at a time, and keeps its shard. If ranks drew only their shards, values would
depend on the number of ranks. The largest whole tensor of the 15B model has 0.4 GB.
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
        compute: compute options, with `auto` resolved.
        slices: division of rows over ranks; None for no division.
    Raises:
        ImportError: the backend is te, and the machine has no Transformer Engine or no GPU.
    """
    if compute.backend == "te":
        from trainer.model import layer_te as layer
    else:
        from trainer.model import layer_torch as layer  # type: ignore[no-redef]  # one is imported
    with torch.device("meta"):
        model = Esm2(options, compute, layer, slices or Slices())
    if compute.compile:
        for block in model.layers:
            block.compile()
    return model


def draw(
    name: str, shape: torch.Size, options: ModelOptions, *, seed: int, device: torch.device
) -> Tensor:
    """Return the initial value of a tensor, float32.

    | tensor | value |
    |---|---|
    | matrices | N(0, 0.02²) |
    | embeddings of <pad> and of the vocabulary's padding | 0 |
    | weights of norms | 1 |
    | biases, contact head | 0 |
    | inv_freq | frequencies of the rotary embedding |
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
    """Allocate the result of `build` on the device of `topology`, and set the values.

    Args:
        values: imported tensors by name, float32, not sharded. Rank 0 sends them to the other
            ranks. Tensors without an entry are drawn at random.
        seed: seed of the random values.
    Returns:
        The initial masters for the optimizer, by name: fp32 values of the parameters that are not
            fp32, sharded like the parameters.
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
