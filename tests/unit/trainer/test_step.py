"""One training step, eager or captured as a CUDA graph.

The tests cover captures that are refused or fail, static memory, and the number of autocasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.reader import ShardReader
from schemas.errors import ThdpackError
from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from trainer import precision
from trainer.config import ComputeOptions, OptimizerOptions
from trainer.distributed.topology import single_process
from trainer.feed import Feed
from trainer.masking import Masker
from trainer.model.initialize import build, fill
from trainer.optimizer import Optimizer
from trainer.step import WARM_UP, CaptureError, GraphReplay, Step, why_not_captured

CPU = torch.device("cpu")
SMALL = ModelOptions(layers=1, hidden_size=32, heads=2, ffn_size=64)


@pytest.mark.parametrize(
    ("changes", "device", "ranks", "micro_batches", "reason"),
    [
        ({}, "cuda", 1, 1, ""),
        ({"precision": "fp8-delayed"}, "cuda", 1, 2, ""),
        ({}, "cuda", 1, 2, ""),
        ({"precision": "fp32"}, "cuda", 1, 1, ""),
        ({"precision": "fp32"}, "cuda", 1, 2, "fp32 gradients of several micro-batches"),
        ({}, "cpu", 1, 1, "there is no NVIDIA GPU"),
        ({"shard": "full"}, "cuda", 2, 1, "FSDP2 launches its collectives from the host"),
        ({"shard": "none"}, "cuda", 2, 1, ""),
        ({"shard": "optimizer"}, "cuda", 2, 1, ""),
        ({"precision": "fp32", "shard": "none"}, "cuda", 2, 2, ""),
        ({"quantized_init": True}, "cuda", 1, 1, "--quantized-init writes FP8 weights"),
        ({"backend": "torch"}, "cuda", 1, 1, "backend torch"),
        ({"recompute": "full"}, "cuda", 1, 1, "recomputation"),
    ],
)
def test_a_step_is_captured_or_the_reason_is_given(
    changes: dict[str, Any], device: str, ranks: int, micro_batches: int, reason: str
) -> None:
    options = ComputeOptions(**{"backend": "te", "precision": "bf16", **changes})
    one = single_process(torch.device(device))
    topology = replace(one, world_size=ranks, shard=changes.get("shard", "none"))
    found = why_not_captured(options, topology, micro_batches)
    assert reason in found
    assert bool(found) is bool(reason)


def test_all_rows_of_a_feed_use_the_same_memory(many_shards: Path) -> None:
    with ShardReader(many_shards) as reader, ShardReader(many_shards) as again:
        feed = Feed(reader, buckets=1, stride=1, device=torch.device("cpu"))
        rows = []
        for bucket, _ in zip(again, range(5), strict=False):
            row = next(feed)
            rows.append(
                (
                    id(row),
                    row.input_ids.data_ptr(),
                    row.sequences.cu_seqlens.data_ptr(),
                    row.positions.data_ptr(),
                    row.counts.data_ptr(),
                )
            )
            assert row.input_ids.tolist() == bucket.input_ids.tolist()
            assert row.positions.tolist() == [bucket.position]
        assert len(set(rows)) == 1


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory.\nTried"),
        RuntimeError("operation not permitted when stream is capturing"),
    ],
)
def test_the_error_for_a_failed_capture_names_the_flag_cuda_graph_off(
    monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(
        torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: calls.append("replayed"))
    )
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())

    def step() -> None:
        calls.append("launched")
        if len(calls) > WARM_UP:
            raise error

    replayed = GraphReplay(step, None)
    for _ in range(WARM_UP):
        replayed()
    with pytest.raises(ThdpackError, match="with --cuda-graph off") as raised:
        replayed()
    assert isinstance(raised.value, CaptureError)
    assert str(error).partition("\n")[0] in str(raised.value)
    assert "Tried" not in str(raised.value)
    assert calls == ["launched"] * (WARM_UP + 1)


def test_closing_a_step_destroys_its_cuda_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    graph = SimpleNamespace(
        replay=lambda: calls.append("replayed"), reset=lambda: calls.append("destroyed")
    )
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())
    replayed = GraphReplay(lambda: None, None)
    replayed.close()  # nothing is captured yet
    for _ in range(WARM_UP + 1):
        replayed()
    replayed.close()
    assert calls == ["replayed", "destroyed"]


def test_adamw_is_capturable_only_after_locate_gradients() -> None:
    model = build(SMALL, ComputeOptions(backend="torch", precision="fp32"))
    fill(model, {}, seed=0, topology=single_process(CPU))
    optimizer = Optimizer(model, OptimizerOptions(), {})
    adam = optimizer._adam._torch
    assert not any(group["capturable"] for group in adam.param_groups)
    optimizer.locate_gradients()
    assert all(group["capturable"] for group in adam.param_groups)


@pytest.mark.parametrize(
    ("numbers", "recompute", "expected"),
    [("fp8-delayed", "full", True), ("fp8-delayed", "none", False), ("bf16", "selective", False)],
)
def test_the_backward_pass_runs_in_autocast_only_if_low_precision_layers_are_recomputed(
    numbers: str, recompute: str, expected: bool
) -> None:
    assert (
        precision.backward_in_autocast(ComputeOptions(precision=numbers, recompute=recompute))
        is expected
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("held", [True, False])
def test_each_micro_batch_ends_its_outermost_autocast_once_before_or_after_the_backward_pass(
    many_shards: Path, held: bool
) -> None:
    """Delayed scaling updates its histories at the end of each outermost autocast."""
    depth, seen = 0, []

    @contextmanager
    def autocast() -> Iterator[None]:
        nonlocal depth
        depth += 1
        yield
        depth -= 1
        if depth == 0:
            seen.append("end")

    model = build(SMALL, ComputeOptions(backend="torch", precision="fp32"))
    masters = fill(model, {}, seed=0, topology=single_process(CPU))
    model.norm.register_forward_hook(lambda *_: seen.append(f"forward {depth > 0}"))
    model.layers[0].register_full_backward_hook(lambda *_: seen.append(f"backward {depth > 0}"))
    with ShardReader(many_shards) as reader:
        step = Step(
            model,
            Optimizer(model, OptimizerOptions(), masters),
            Masker(ESM2, seed=0, probability=0.15, epoch_buckets=len(reader), device=CPU),
            autocast,
            single_process(CPU),
            micro_batches=2,
            captured=False,
            backward_in_autocast=held,
        )
        step(Feed(reader, buckets=1, stride=1, device=CPU), 1e-3)
    assert seen == 2 * (
        ["forward True", "backward True", "end"]
        if held
        else ["forward True", "end", "backward False"]
    )
