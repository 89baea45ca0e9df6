"""Orthogonalization of matrices: replace all singular values by about 1."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

COEFFICIENTS: Final = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)
"""Coefficients a, b, c of the five iterations a·X + b·(X Xᵀ)·X + c·(X Xᵀ)²·X. Each is the best
polynomial for the range of singular values that the iterations before it leave."""
MARGIN: Final = 1.02
"""The coefficients were computed for singular values of at most 1 / MARGIN. A rounding error can
then not lift a singular value above the range for which an iteration converges."""


def orthogonalized(matrices: Tensor) -> Tensor:
    """Return matrices with the same singular vectors, and singular values of about 1: the polar
    factor U Vᵀ of U S Vᵀ, approximately.

    Singular values below about 1/1000 of the Frobenius norm stay smaller than 1. A matrix of zeros
    stays a matrix of zeros.

    Sources: Muon (Jordan et al., 2024), and the coefficients of Polar Express (Amsel et al., 2025).

    Args:
        matrices: floating[n, rows, columns]. Products are computed in this dtype.
    """
    wide = matrices.shape[1] <= matrices.shape[2]
    x = matrices if wide else matrices.mT
    wider = torch.promote_types(x.dtype, torch.float32)
    norms = torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True, dtype=wider)
    x = (x / (norms * MARGIN + 1e-20)).to(matrices.dtype)
    for a, b, c in COEFFICIENTS:
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT
