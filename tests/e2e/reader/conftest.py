"""Expected buckets for the tests of the reader."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from pipeline.reader import ShardReader
from tests.helpers.data.delivered import STEP, Seen, seen


@pytest.fixture(scope="session")
def uninterrupted(many_shards: Path) -> list[Seen]:
    """Return the buckets of one and a half epochs, read by a single rank."""
    with ShardReader(many_shards, buckets_per_step=STEP) as reader:
        count = -(-3 * len(reader) // (2 * STEP)) * STEP
        found = [seen(bucket) for bucket in islice(reader, count)]
    assert [bucket[0] for bucket in found] == list(range(count))
    return found
