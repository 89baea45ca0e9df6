"""Options of backend, precision and parallelism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.models import Recompute
from schemas.text.option_checks import check_range
from trainer.config.checks import check_whole

Backend = Literal["auto", "te", "torch"]
Precision = Literal[
    "auto", "fp32", "bf16", "fp8-delayed", "fp8-current", "fp8-block", "mxfp8", "nvfp4"
]
Reshard = Literal["auto", "layer", "micro-batch", "step"]
Shard = Literal["auto", "none", "optimizer", "full"]
CudaGraph = Literal["auto", "on", "off"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeOptions:
    """Backend, precision and parallelism. These options change results only by rounding."""

    backend: Backend = "auto"
    """Implementation of the layers. te: Transformer Engine, for NVIDIA GPUs. torch: plain torch,
    for any device. auto: te if the machine has a GPU and Transformer Engine, else torch."""
    precision: Precision = "auto"
    """Precision of matrix products. auto: bf16 on a GPU, fp32 on a CPU. fp8-*, mxfp8 and nvfp4 need
    backend te. mxfp8 and nvfp4 also need a Blackwell GPU. Master weights and Adam's state are
    always fp32."""
    precision_layers: str = "all"
    """Layers whose matrix products use --precision (only for fp8-*, mxfp8 and nvfp4). The other
    layers use bf16. all: all layers. inner:N: all layers except the first N and the last N. 2-30 or
    0,4,8-20: these layers, counted from 0."""
    quantized_init: bool = False
    """For the layers in --precision-layers, store FP8 weights instead of bf16 weights, in addition
    to the fp32 master weights. This saves memory, and a cast in each forward pass. Each rank must
    hold the whole model (--shard none)."""
    recompute: Recompute = "none"
    """Activations that the backward pass recomputes, to save memory. none: no activations.
    selective: those of the feed-forward part of each layer. full: all, except the inputs of
    layers."""
    cuda_graph: CudaGraph = "auto"
    """Capture the step in a CUDA graph and replay it, which saves the cost of kernel launches.
    auto: on if a capture is possible, else off. If auto is off on a GPU, the first line of output
    gives the reason. on: end with an error if a capture is impossible."""
    compile: bool = False
    """Compile layers with torch.compile. Only for --backend torch, because the layers of backend te
    already consist of fused kernels."""
    shard: Shard = "auto"
    """Division of the model among the ranks. none: each rank holds the whole model. optimizer:
    each rank holds all weights, and a part of the fp32 masters and of Adam's state. full: each rank
    holds a part of the parameters, gradients and optimizer state (FSDP2). auto: full if
    --replicate, --reshard or --context-parallel is given. Otherwise, auto is the first of none,
    optimizer and full that fits into memory with a micro-batch of one bucket."""
    replicate: int = 1
    """Number of replicas of the parameters (HSDP). Each replica is sharded over neighbouring ranks,
    such as those of one node. The number of these ranks is the world size divided by --replicate.
    With 1, all ranks share a single replica (FSDP)."""
    context_parallel: int = 1
    """Number of neighbouring ranks that share each bucket, for sequences too long for one GPU. Each
    rank holds a slice of the tokens, and computes attention for some of the heads."""
    reshard: Reshard = "auto"
    """When ranks free gathered parameters and reduce gradients (FSDP2). layer: after each layer
    (least memory). micro-batch: after each micro-batch. step: after each step (least traffic, but 6
    more bytes of memory per parameter). auto: step if the run then fits, and if these 6 bytes per
    parameter take at most a quarter of a GPU's memory, else layer."""
    gather_ahead: int = 1
    """Number of layers whose parameters are gathered in advance, while a layer computes (FSDP2)."""
    timeout_minutes: float = 10.0
    """Minutes that ranks wait for a rank that does not answer. After this time, the run ends with
    an error that names the rank."""

    def __post_init__(self) -> None:
        check_whole(self)
        check_range(self, "replicate", "context_parallel", "gather_ahead", least=1)
        check_range(self, "timeout_minutes", above=0)
