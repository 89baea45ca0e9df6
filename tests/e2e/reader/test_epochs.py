"""`ShardReader.epoch` reads one epoch on any number of ranks, and stops at its end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate, chain, islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.reader import Mixture, ShardReader
from pipeline.storage.retries import ClosedError
from schemas.shard import Bucket
from tests.helpers.data.many_shards import build_many_shards

VARIANTS = 2


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset of 2 variants, each of a few dozen buckets in several shards."""
    folder = tmp_path_factory.mktemp("epochs")
    return build_many_shards(folder, "--variants", str(VARIANTS), records=150)


@contextmanager
def opened(
    dataset: Path, groups: int, share: int = 1, context_parallel: int = 1
) -> Iterator[list[ShardReader]]:
    """Open a reader on each rank."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                ShardReader(
                    dataset,
                    rank=rank,
                    world_size=groups * context_parallel,
                    context_parallel=context_parallel,
                    buckets_per_step=groups * share,
                    prefetch=0,
                )
            )
            for rank in range(groups * context_parallel)
        ]


def positions(buckets: Iterator[Bucket]) -> list[int]:
    return [bucket.position for bucket in buckets]


def end_of_epoch(counts: tuple[int, ...], position: int) -> int:
    """Return the first position after the epoch of a position, for positions in two cycles."""
    ends = list(accumulate(counts * 2))
    return ends[bisect_right(ends, position)]


@settings(max_examples=40)
@given(st.integers(1, 7), st.integers(1, 3), st.integers(1, 2), st.data())
def test_the_ranks_together_read_the_rest_of_an_epoch_exactly_once_and_then_the_next_epoch(
    dataset: Path, groups: int, share: int, context_parallel: int, data: st.DataObject
) -> None:
    with opened(dataset, groups, share, context_parallel) as readers:
        counts = readers[0].epoch_buckets
        begin = data.draw(st.integers(0, sum(counts) - 1))
        already = data.draw(st.integers(0, 2 * groups))
        for reader in readers:
            reader.seek(begin)
            list(islice(reader, already))  # perhaps a part of a step
        begin += already * groups
        if begin >= sum(counts):
            return
        for _ in range(2):
            end = end_of_epoch(counts, begin)
            read = [positions(reader.epoch()) for reader in readers]
            for rank, found in enumerate(read):
                assert found == read[rank - rank % context_parallel]
            assert sorted(chain(*read[::context_parallel])) == list(range(begin, end))
            assert {reader.position for reader in readers} == {end}
            begin = end


def test_a_loop_over_epochs_reads_the_buckets_of_each_variant_once(dataset: Path) -> None:
    with opened(dataset, 5) as readers:
        counts = readers[0].epoch_buckets
        assert any(count % 5 for count in counts)  # otherwise, all ranks would read equally many
        for epoch in range(2 * VARIANTS):
            buckets = [bucket for reader in readers for bucket in reader.epoch()]
            assert {bucket.epoch for bucket in buckets} == {epoch}
            first = sum(counts[: epoch % VARIANTS])
            numbers = sorted(readers[0].number_at(bucket.position) for bucket in buckets)
            assert numbers == list(range(first, first + counts[epoch % VARIANTS]))


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 3), st.data())
def test_an_epoch_interrupted_after_any_bucket_resumes_with_any_number_of_ranks(
    dataset: Path, groups: int, other_groups: int, share: int, data: st.DataObject
) -> None:
    with opened(dataset, groups, share) as readers, opened(dataset, other_groups) as others:
        count = readers[0].epoch_buckets[0]
        most = -(-count // groups)  # number of buckets of rank 0 in the epoch
        taken = data.draw(st.just(most) | st.integers(1, most))
        for reader in readers:
            for number, _ in enumerate(reader.epoch(), 1):
                if number == taken:
                    break
        complete = min(taken // share * share * groups, count)
        if taken * groups >= count:  # the last step of the epoch is short
            complete = count
        state = readers[0].state_dict()
        assert state["position"] == complete
        for other in others:
            other.load_state_dict(state)
        end = end_of_epoch(readers[0].epoch_buckets, complete)
        rest = [position for other in others for position in positions(other.epoch())]
        assert sorted(rest) == list(range(complete, end))


def test_the_endless_reader_continues_after_an_epoch(dataset: Path) -> None:
    with opened(dataset, 1) as [reader]:
        count = reader.epoch_buckets[0]
        assert positions(reader.epoch()) == list(range(count))
        assert positions(islice(reader, 3)) == [count, count + 1, count + 2]


def test_a_closed_reader_has_no_epoch(dataset: Path) -> None:
    with opened(dataset, 1) as [reader]:
        pass
    with pytest.raises(ClosedError):
        list(reader.epoch())


def test_a_mixture_has_no_epoch(dataset: Path) -> None:
    with (
        Mixture([(dataset, 1)], prefetch=0) as mixture,
        pytest.raises(TypeError, match=r"^a Mixture has no epoch, because .*ShardReader\.epoch"),
    ):
        mixture.epoch()
