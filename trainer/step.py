"""One optimizer step. The kernels of a step are launched one by one, or captured in CUDA graphs and
replayed.

Two CUDA graphs share their memory. The first captures a micro-batch (masking, forward, backward).
The second captures the update (gradient norm, clipping, AdamW). A graph reads fixed device
addresses. Therefore its inputs never move: the row that the feed fills, the learning rate, the
optimizer state and the scaling state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from schemas.errors import ThdpackError
from trainer.config import ComputeOptions
from trainer.distributed.fsdp import set_gradient_sync
from trainer.distributed.topology import Topology
from trainer.feed import Row
from trainer.masking import Masker
from trainer.model.esm2 import Esm2
from trainer.optimizer import Optimizer

WARM_UP: Final = 3
"""Number of ordinary calls before a capture. These calls compile and choose kernels, and allocate
tensors that later calls use again, such as FP8 scales."""

Result = TypeVar("Result")


class CaptureError(ThdpackError):
    """A step could not be captured in a CUDA graph, for a reason that `why_not_captured` did not
    foresee.
    """


def why_not_captured(options: ComputeOptions, topology: Topology, micro_batches: int) -> str:
    """Return the reason why a step with these options cannot be captured in a CUDA graph; "" if it
    can be captured.
    """
    if topology.device.type != "cuda":
        return "there is no NVIDIA GPU"
    if topology.is_sharded:
        return "FSDP2 launches its collectives from the host"
    if topology.slices.ranks > 1:
        return "the host launches the exchange of activations that --context-parallel needs"
    if options.backend != "te":
        return (
            "with backend torch, attention in fp32 makes the host wait for the GPU, and capture of "
            "attention in bf16 was never tested"
        )
    if options.recompute != "none":
        return "recomputation keeps the state of random number generators on the host"
    if options.quantized_init:
        return "--quantized-init writes FP8 weights outside of the graph"
    if options.precision == "fp32" and micro_batches > 1 and not topology.is_replicated:
        return (
            "fp32 gradients of several micro-batches are summed in place, and a replayed graph "
            "would overwrite the sum"
        )
    return ""


class Step:
    """One optimizer step: forward and backward of each micro-batch, then the optimizer."""

    def __init__(
        self,
        model: Esm2,
        optimizer: Optimizer,
        masker: Masker,
        autocast: Callable[[], AbstractContextManager[Any]],
        topology: Topology,
        *,
        micro_batches: int,
        reduced_once: bool = False,
        captured: bool,
        backward_in_autocast: bool,
    ) -> None:
        """Args:
        micro_batches: number of micro-batches of this rank in a step.
        reduced_once: True to reduce gradients over ranks only after the last micro-batch
            (`--reshard step`).
        captured: True to capture the step in CUDA graphs and replay them. Each row must then be the
            same Row object with new content.
        backward_in_autocast: True to run the backward pass inside autocast; see
            `precision.backward_in_autocast`.
        """
        self._model, self._optimizer, self._masker, self._autocast, self._topology = (
            model,
            optimizer,
            masker,
            autocast,
            topology,
        )
        self._micro_batches = micro_batches
        self._held = reduced_once and micro_batches > 1 and topology.is_sharded
        self._adds = not self._held and (micro_batches > 1 or topology.is_replicated)
        # only one of the ranks that share a bucket counts the bucket's tokens
        self._counted = float(topology.slices.rank == 0)
        self._rate = torch.zeros((), dtype=torch.float64, device=topology.device)
        self._sums = torch.zeros(5, dtype=torch.float64, device=topology.device)
        self._row: Row | None = None
        self._run_micro_batch: Callable[[], None] = (
            self._micro_batch_in_autocast if backward_in_autocast else self._micro_batch
        )
        self._run_update: Callable[[], tuple[Tensor, Tensor]] = self._update
        self._captured = captured
        if captured:
            pool = torch.cuda.graph_pool_handle()
            self._run_micro_batch = GraphReplay(self._run_micro_batch, pool)
            self._run_update = GraphReplay(self._update, pool, before=optimizer.locate_gradients)

    def __call__(self, rows: Iterator[Row], rate: float) -> tuple[Tensor, Tensor]:
        """Launch the kernels of a step, without waiting for the device.

        Returns:
            Two tensors about the global batch, valid until the next step.
            float64[4]: mean loss, gradient norm, steps applied so far, steps skipped in a row.
            float64[4]: number of predicted tokens, overflow (see `Masked`), number of tokens,
                Σ length² over sequences.
        """
        self._rate.fill_(rate)
        for number in range(self._micro_batches):
            row = next(rows)
            if self._held:
                set_gradient_sync(self._model, last=number == self._micro_batches - 1)
            if self._captured and self._row is not None and self._row is not row:
                raise ValueError(
                    "a captured step always reads the same Row object: pass the row of the feed"
                )
            self._row = row
            self._run_micro_batch()
        return self._run_update()

    def close(self) -> None:
        """Destroy the CUDA graphs. Call this before the process groups are destroyed, because NCCL
        waits for the graphs that contain its collectives.
        """
        for function in (self._run_micro_batch, self._run_update):
            if isinstance(function, GraphReplay):
                function.close()

    def _micro_batch(self) -> None:
        """Run the forward and backward pass of the row. The loss is a sum over predicted tokens.
        Add loss, predicted tokens, overflow, tokens and Σ length² of the row to `_sums`.
        """
        assert self._row is not None
        masked = self._masker(self._row.input_ids, self._row.positions)
        with self._autocast():
            logits = self._model(masked.input_ids, self._row.sequences, masked.index)
        loss = F.cross_entropy(logits, masked.labels, reduction="sum")
        loss.backward()
        if self._adds:
            self._optimizer.gradients.add()
        predicted = (masked.labels >= 0).sum()
        counts = self._row.counts.double() * self._counted
        self._sums += torch.cat(
            [
                torch.stack([loss.detach().double(), predicted.double(), masked.overflow.double()]),
                counts,
            ]
        )

    def _micro_batch_in_autocast(self) -> None:
        """Run a micro-batch with its backward pass inside autocast."""
        with self._autocast():
            self._micro_batch()

    def _update(self) -> tuple[Tensor, Tensor]:
        gradients = self._optimizer.gradients
        gradients.reduce()
        square = gradients.square().double().reshape(1)
        # A single all-reduce sums loss, counts and norm. The only other all-reduces on the device
        # are those of gradients and of delayed scaling.
        totals = self._topology.sum_(torch.cat([self._sums, square]))
        self._sums.zero_()
        loss, norm = self._optimizer.step(
            self._rate, loss_sum=totals[0], count=totals[1], gradient_square=totals[5]
        )
        return torch.stack(
            [loss, norm, self._optimizer.applied.double(), self._optimizer.bad.double()]
        ), totals[1:5]


class GraphReplay(Generic[Result]):
    """Wrapper of a function that launches the same kernels on the same memory each time. The first
    WARM_UP calls run the function. The next call captures the function in a CUDA graph, and replays
    the graph. Later calls replay the graph.
    """

    def __init__(
        self, function: Callable[[], Result], pool: Any, *, before: Callable[[], None] | None = None
    ) -> None:
        """Args:
        pool: memory pool. Graphs that never run at the same time may share it.
        before: function to call once, immediately before the capture.
        """
        self._function, self._pool, self._before = function, pool, before
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> Result:
        """Call the function or replay its graph. Return the function's result.

        Raises:
            CaptureError: the function cannot be captured. Gradients and sums are then undefined,
                and the run cannot continue.
        """
        if self._calls < WARM_UP:
            self._calls += 1
            return self._function()
        if self._graph is None:
            self._graph = self._capture()
        self._graph.replay()
        return self._result

    def close(self) -> None:
        """Destroy the graph. The function cannot be called again."""
        if self._graph is not None:
            self._graph.reset()

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        try:
            if self._before is not None:
                self._before()
            # "thread_local", because the thread that saves a checkpoint may use CUDA meanwhile
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                self._result = self._function()
        except (
            RuntimeError
            # torch raises RuntimeError for every CUDA error, even for lack of memory
        ) as error:
            reason = str(error).partition("\n")[0]
            raise CaptureError(
                f"the step cannot be captured in a CUDA graph ({reason}): run the same command "
                "with --cuda-graph off"
            ) from error
        return graph
