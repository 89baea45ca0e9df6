"""Tensors in FP8 that our kernels write, for the matrix products of Transformer Engine.

With delayed scaling (precision fp8-delayed), Transformer Engine knows the scale of a tensor before
the tensor is computed. So the kernel that computes a tensor can also convert it.
"""

from __future__ import annotations

from typing import Any

import torch
import transformer_engine.pytorch as te
from torch import Tensor
from transformer_engine.debug.pytorch.debug_state import TEDebugState
from transformer_engine.pytorch.constants import TE_DType_To_Torch
from transformer_engine.pytorch.tensor.float8_tensor import Float8Quantizer, Float8Tensor


def delayed_quantizer(linear: te.Linear) -> Any:
    """Return Transformer Engine's quantizer of the input of a linear map. The quantizer has the
    scale, and receives the largest absolute number (amax).

    The result is None if this forward pass does not use delayed scaling, or if statistics of
    tensors are collected: these need the input in bf16.
    """
    linear.init_fp8_metadata(num_gemms=1)  # otherwise, its first forward pass would do this
    if not linear.fp8 or TEDebugState.debug_enabled:
        return None
    quantizer = linear.quantizers["scaling_fwd"][0]
    return quantizer if isinstance(quantizer, Float8Quantizer) else None


def torch_dtype(quantizer: Any) -> torch.dtype:
    """Return the FP8 dtype of a quantizer's results: E4M3, or E5M2 for gradients."""
    dtype: torch.dtype = TE_DType_To_Torch[quantizer.dtype]
    return dtype


def fp8_tensor(
    quantizer: Any, dtype: torch.dtype, inverse: Tensor, data: Tensor, transposed: Tensor | None
) -> Tensor:
    """Return numbers in FP8 as a tensor that Transformer Engine accepts instead of converting.

    Args:
        dtype: dtype that the tensor reports.
        inverse: float32[1], inverse of the scale.
        data: FP8[T, D], numbers multiplied by the scale.
        transposed: FP8[D, T], the same transposed. If None, Transformer Engine transposes `data`
            in the backward pass.
    """
    result: Tensor = Float8Tensor(
        shape=data.shape,
        dtype=dtype,
        data=data.view(torch.uint8),
        fp8_scale_inv=inverse,
        fp8_dtype=quantizer.dtype,
        data_transpose=None if transposed is None else transposed.view(torch.uint8),
        quantizer=quantizer,
        device=data.device,
    )
    return result
