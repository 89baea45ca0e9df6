"""The feed copies the rows of the reader to the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.reader import ShardReader, merge
from tests.helpers.data.many_shards import MAX_SEQ_LEN
from tests.helpers.models import CPU
from trainer.feed import RING, Feed


@pytest.mark.parametrize("buckets", [1, 3])
def test_rows_of_the_feed_match_the_buckets_of_the_reader(many_shards: Path, buckets: int) -> None:
    ranks = {"rank": 1, "world_size": 2, "buckets_per_step": 2 * buckets}
    feed = Feed(ShardReader(many_shards, **ranks), buckets=buckets, stride=2, device=CPU)
    reader = ShardReader(many_shards, **ranks)
    for _ in range(2 * RING):
        row, originals = next(feed), [next(reader) for _ in range(buckets)]
        merged = merge(originals)
        assert np.array_equal(row.input_ids.numpy(), merged.input_ids)
        assert np.array_equal(row.sequences.cu_seqlens.numpy(), merged.cu_seqlens)
        assert row.sequences.max_seqlen == MAX_SEQ_LEN
        assert row.positions.tolist() == [bucket.position for bucket in originals]
        lengths = np.concatenate(
            [np.diff(bucket.cu_seqlens[: bucket.num_seqs + 1]) for bucket in originals]
        )
        assert row.counts.tolist() == [lengths.sum(), (lengths.astype(np.int64) ** 2).sum()]
    assert feed.waited > 0
