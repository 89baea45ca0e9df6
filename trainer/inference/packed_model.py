"""Run a model on packed rows, without waiting for the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer import precision
from trainer.config import ComputeOptions
from trainer.distributed.topology import Topology
from trainer.feed import Row, RowCopier
from trainer.inference.rows import PackedRow
from trainer.model.esm2 import Esm2
from trainer.step import GraphReplay

RowFunction = Callable[[Esm2, Row, Tensor], Mapping[str, Tensor]]
"""Function that computes results of a row: called with the model, the row, and int64[2 × slots],
the ranges of owned tokens (see `PackedRow`). The results have the slots of the row as their first
dimension, or its tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """Results of a row, on their way to the host."""

    row: PackedRow
    results: Mapping[str, Tensor]
    copied: torch.cuda.Event | None

    def wait(self) -> Mapping[str, Tensor]:
        """Return the results, on the host."""
        if self.copied is not None:
            self.copied.synchronize()
        return self.results


class PackedModel:
    """A model and a function of its rows. All rows must have one shape."""

    def __init__(
        self, model: Esm2, compute: ComputeOptions, topology: Topology, function: RowFunction
    ) -> None:
        """Args:
        compute: compute options, with `auto` resolved.
        """
        self._model, self._compute, self._device = model, compute, topology.device
        self._function = function
        self._copier = RowCopier(topology.device)
        self._owned: Tensor | None = None
        self._row: Row | None = None
        self._run: Callable[[], Mapping[str, Tensor]] = self._forward
        if (
            topology.device.type == "cuda"
            and compute.backend == "te"
            and compute.precision == "bf16"
        ):
            self._run = GraphReplay(self._forward, torch.cuda.graph_pool_handle())

    @torch.inference_mode()
    def launch(self, row: PackedRow) -> Launched:
        """Launch the kernels of a row. Their results are then copied to the host."""
        self._copier.wait()
        self._row = self._copier.copy(row.bucket, np.zeros(1, dtype=np.int64))
        self._copy_owned(row.owned)
        results = self._run()
        if self._device.type != "cuda":
            return Launched(row=row, results=results, copied=None)
        on_host = {name: tensor.to("cpu", non_blocking=True) for name, tensor in results.items()}
        copied = torch.cuda.Event()
        copied.record()
        return Launched(row=row, results=on_host, copied=copied)

    def _copy_owned(self, owned: NDArray[np.int64]) -> None:
        host = torch.from_numpy(owned)
        if self._device.type == "cuda":
            host = host.pin_memory()
        if self._owned is None:
            self._owned = torch.empty_like(host, device=self._device)
        self._owned.copy_(host, non_blocking=True)

    def _forward(self) -> Mapping[str, Tensor]:
        assert self._row is not None
        assert self._owned is not None
        with precision.autocast(self._compute, self._device, sharded=False):
            return self._function(self._model, self._row, self._owned)
