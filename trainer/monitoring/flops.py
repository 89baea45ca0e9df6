"""Model FLOPs of a step, and the peak FLOP/s of known GPUs.

Model FLOPs of a step = 6 × parameters in matrices of the layers × unpadded tokens
                      + 12 × layers × hidden size × Σ length²  (sum over sequences, for attention)
                      + 6 × parameters in matrices of the head × predicted tokens.
Recomputed activations do not count.

MFU (model FLOP/s utilization) is the model FLOPs per second, divided by the peak FLOP/s of all
devices. The peak is the dense bf16 figure of the vendor's datasheet, even for FP8 runs.

Source: Chowdhery et al., PaLM, 2022, appendix B, with attention counted exactly.
"""

from __future__ import annotations

from typing import Final

import torch

from schemas.models import ModelOptions
from trainer.config import TrainOptions
from trainer.model.esm2 import PADDED_VOCABULARY

PEAK_TFLOPS: Final = {
    "A100": 312.0,
    "H100": 989.4,
    "H200": 989.4,
    "GH200": 989.4,
    "B200": 2250.0,
    "GB200": 2500.0,
    "L40S": 362.0,
}
"""Dense bf16 peak of each GPU in TFLOP/s. If a GPU has several versions, this is the peak of the
SXM version. If the name of a device contains several of these names, the longest name counts.
"""


def model_flops(model: ModelOptions, *, tokens: float, squares: float, predicted: float) -> float:
    """Return the FLOPs of the forward and backward pass.

    Args:
        tokens: number of tokens without padding.
        squares: Σ length² over sequences.
        predicted: number of predicted tokens.
    """
    d = model.hidden_size
    layer = 4 * d * d + 2 * d * model.ffn_size
    return (
        6 * model.layers * layer * tokens
        + 12 * model.layers * d * squares
        + 6 * (d * d + d * PADDED_VOCABULARY) * predicted
    )


def peak_flops(options: TrainOptions, device: torch.device) -> float:
    """Return the peak FLOP/s of one device; 0 if unknown."""
    if options.output.peak_tflops or device.type != "cuda":
        return options.output.peak_tflops * 1e12
    name = torch.cuda.get_device_name(device)
    return (
        max(
            ((len(known), peak) for known, peak in PEAK_TFLOPS.items() if known in name),
            default=(0, 0.0),
        )[1]
        * 1e12
    )
