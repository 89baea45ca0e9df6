"""Number formats of a run: dtypes, Transformer Engine's recipes for formats of 8 and 4 bits, and
the scaling state of these recipes.

Master weights, gradient norms, Adam's state and the loss are always fp32. Backend `te` stores
weights in bf16 (in FP8 with --quantized-init), and the optimizer holds masters, which are fp32
copies of the weights. Backend `torch` stores weights in fp32 and casts them for each matrix
product.

A precision is "low" if the matrix products of layers run in 8 or 4 bits. Attention, norms and the
head then run in bf16. Start reading at `resolve.py`.
"""

from trainer.precision.autocast import (
    autocast,
    backward_in_autocast,
    compute_dtype,
    stored_dtype,
)
from trainer.precision.delayed_scaling import prepare_scaling, preserve_scaling, scaling_tensors
from trainer.precision.low_precision import Capability, is_low, low_layers
from trainer.precision.quantized_weights import is_quantized, parameters, quantize_parameters
from trainer.precision.resolve import check_model, resolve, resolve_for

__all__ = [
    "Capability",
    "autocast",
    "backward_in_autocast",
    "check_model",
    "compute_dtype",
    "is_low",
    "is_quantized",
    "low_layers",
    "parameters",
    "prepare_scaling",
    "preserve_scaling",
    "quantize_parameters",
    "resolve",
    "resolve_for",
    "scaling_tensors",
    "stored_dtype",
]
