"""A step, eager or captured: where a capture is refused, and that what a step reads stands still."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.reader import ShardReader
from trainer.config import ComputeOptions
from trainer.feed import Feed
from trainer.parallel import alone
from trainer.step import why_not_captured


@pytest.mark.parametrize(
    ("changes", "device", "ranks", "reason"),
    [
        ({}, "cuda", 1, ""),
        ({"precision": "fp8-delayed"}, "cuda", 1, ""),
        ({}, "cpu", 1, "there is no NVIDIA GPU"),
        ({}, "cuda", 2, "sharded over several ranks"),
        ({"backend": "torch"}, "cuda", 1, "backend torch"),
        ({"recompute": "full"}, "cuda", 1, "recomputation"),
    ],
)
def test_a_step_is_captured_or_there_is_a_reason_why_not(changes: dict[str, Any], device: str, ranks: int, reason: str) -> None:
    options = ComputeOptions(**{"backend": "te", "precision": "bf16", "cuda_graph": True, **changes})
    found = why_not_captured(options, replace(alone(torch.device(device)), world_size=ranks))
    assert reason in found
    assert bool(found) is bool(reason)


def test_all_rows_of_a_feed_are_the_same_memory(many_shards: Path) -> None:
    with ShardReader(many_shards) as reader, ShardReader(many_shards) as again:
        feed = Feed(reader, buckets=1, stride=1, device=torch.device("cpu"))
        rows = []
        for bucket, _ in zip(again, range(5), strict=False):
            row = next(feed)
            rows.append((id(row), row.input_ids.data_ptr(), row.sequences.cu_seqlens.data_ptr(), row.positions.data_ptr(), row.counts.data_ptr()))
            assert row.input_ids.tolist() == bucket.input_ids.tolist()
            assert row.positions.tolist() == [bucket.position]
        assert len(set(rows)) == 1
