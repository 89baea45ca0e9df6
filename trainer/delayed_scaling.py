"""Delayed scaling and what is not training; tests/gpu/test_scaling_kept.py holds it on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from trainer.precision import scaling_tensors


@contextmanager
def scaling_kept(model: nn.Module) -> Iterator[None]:
    """Leave scales and histories as they are: the largest values of a validation are not the next step's.

    Transformer Engine moves histories on only where gradients are computed, but its kernels note largest
    values in any forward pass, in the newest row of the history. Where the state does not exist yet, it
    begins in here with zeros, as it would in a step.
    """
    tensors = [tensor for _, tensor in scaling_tensors(model)]
    kept = [tensor.clone() for tensor in tensors]
    try:
        yield
    finally:
        if tensors:
            torch._foreach_copy_(tensors, kept)
        else:
            for name, tensor in scaling_tensors(model):
                if name.endswith("amax_history"):
                    tensor.zero_()
