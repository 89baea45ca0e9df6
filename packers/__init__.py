"""Packers: pure functions that assign sequences to buckets by length. Inner loops are in Cython.

`balanced.py` has the default packer. `baselines.py` has simpler packers for comparison.
`quality.py` measures the quality of a packing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Packer(Protocol):
    """Assigns sequences to buckets; `packers.balanced.pack_balanced` documents the arguments."""

    def __call__(
        self, lengths: NDArray[np.int64], *, capacity: int, max_seqs: int, final: bool = True
    ) -> NDArray[np.int32]: ...


class _Packers(Mapping[str, Packer]):
    """Packers by name. A packer is imported at its first use, because few commands need one."""

    def __init__(self, functions: dict[str, str]) -> None:
        self._functions = functions

    def __getitem__(self, name: str) -> Packer:
        module, _, function = self._functions[name].rpartition(".")
        return cast(Packer, getattr(import_module(module), function))

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)


PACKERS: Final = _Packers(
    {
        "balanced": "packers.balanced.pack_balanced",
        "best-fit": "packers.baselines.pack_best_fit",
        "next-fit": "packers.baselines.pack_next_fit",
        "bfd": "packers.baselines.pack_best_fit_decreasing",
    }
)
"""Packers by the name that `--packer` accepts."""

if TYPE_CHECKING:
    PackerName = str
else:
    PackerName = Literal[tuple(PACKERS)]
"""A key of PACKERS."""

__all__ = ["PACKERS", "Packer", "PackerName"]
