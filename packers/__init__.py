"""Packers assign sequences to buckets by their lengths. Pure functions, compiled with Cython.

`balanced.py` is the default. `baselines.py` has the packers it is compared with, `quality.py` the
figures that judge them.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from packers.balanced import pack_balanced
from packers.baselines import pack_best_fit, pack_best_fit_decreasing, pack_next_fit


class Packer(Protocol):
    """Assigns sequences to buckets; see `pack_balanced` for arguments and result."""

    def __call__(
        self, lengths: NDArray[np.int64], *, capacity: int, max_seqs: int, final: bool = True
    ) -> NDArray[np.int32]: ...


PACKERS: Final[dict[str, Packer]] = {
    "balanced": pack_balanced,
    "best-fit": pack_best_fit,
    "next-fit": pack_next_fit,
    "bfd": pack_best_fit_decreasing,
}
"""Packers by the name that `--packer` takes."""

__all__ = [
    "PACKERS",
    "Packer",
    "pack_balanced",
    "pack_best_fit",
    "pack_best_fit_decreasing",
    "pack_next_fit",
]
