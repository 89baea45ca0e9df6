"""Statistics from counts of values equal statistics from the values themselves."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packers.baselines import pack_next_fit
from packers.quality import measure
from pipeline.build.arrays.hash_kernel import count_values
from pipeline.build.split_statistics import SplitStatistics
from pipeline.report.distributions import added, distribution_of
from pipeline.report.gather.assemble import together
from pipeline.report.gather.lengths import Counted, histogram, sequences_of
from pipeline.report.gather.most_repeated import most_repeated
from pipeline.report.gather.waste import shuffled, waste
from pipeline.report.model import Settings, Waste
from schemas.manifest_entries import Histogram, SplitTotals

LENGTHS = st.lists(st.integers(0, 3000), min_size=1, max_size=200)


@given(LENGTHS, st.integers(1, 100))
def test_percentiles_match_their_definition(lengths: list[int], percent: int) -> None:
    found = Counted.of(np.array(lengths)).percentile(percent)
    assert found == sorted(lengths)[ceil(len(lengths) * percent / 100) - 1]


def each(lengths: Counted) -> list[int]:
    """Return all lengths in ascending order."""
    return np.repeat(lengths.values, lengths.counts).tolist()


@given(LENGTHS)
def test_counting_by_table_and_by_sorting_agree(lengths: list[int]) -> None:
    found = Counted.of(np.array(lengths))
    # 2^40 is too large an index for a table, so these lengths are sorted
    huge = Counted.of(np.array([*lengths, 1 << 40]))
    again = Counted.of(np.append(found.values, 0), np.append(found.counts, 3))
    assert each(found) == sorted(lengths) == each(huge)[:-1] == each(again)[3:]
    assert (found.number, found.total) == (len(lengths), sum(lengths))


@given(LENGTHS)
def test_a_histogram_counts_every_length_once_in_bins_of_one_round_width(
    lengths: list[int],
) -> None:
    found = histogram(Counted.of(np.array(lengths)))
    assert sum(found.counts) == len(lengths)
    for i, count in enumerate(found.counts):
        assert count == sum(found.edges[i] <= length < found.edges[i + 1] for length in lengths)
    widths = {b - a for a, b in zip(found.edges[:-2], found.edges[1:-1], strict=True)}
    assert len(widths) <= 1
    assert (
        str(int(found.edges[1])).rstrip("0")
        in ("1", "12", "15", "2", "25", "3", "4", "5", "6", "8")
        or len(found.edges) == 2
    )


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=100),
    st.integers(3, 600),
    st.sampled_from(["truncate", "split"]),
)
def test_the_report_cuts_records_into_sequences_as_a_build_does(
    lengths: list[int], max_seq_len: int, long: str
) -> None:
    most = max_seq_len - 2
    pieces = (
        [min(most, length - at) + 2 for length in lengths for at in range(0, length, most)]
        if long == "split"
        else [min(x, most) + 2 for x in lengths]
    )
    assert each(sequences_of(Counted.of(np.array(lengths)), most=most, long=long)) == sorted(pieces)


def report_settings(capacity: int, longest: int, max_seqs: int = 1000) -> Settings:
    return Settings(
        vocabulary="esm2",
        capacity=capacity,
        max_seq_len=longest,
        long="truncate",
        min_residues=1,
        on_invalid="unk",
        where=None,
        dedup="exact",
        split="train=0.99,valid=0.01",
        seed=3,
        max_seqs=max_seqs,
        length_multiple=1,
        packer="balanced",
    )


def test_chunks_do_not_change_the_result_of_next_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.random.default_rng(0).integers(3, 300, 5000)
    sequences = Counted.of(lengths)
    monkeypatch.setattr("pipeline.report.gather.waste._CHUNK", 97)
    options = report_settings(1024, 300)
    packed = SplitStatistics(capacity=1024, longest=300)
    packed.add_costs(np.array([1]))
    found = {
        way.name: way
        for way in waste(
            sequences,
            packed.totals(),
            packed.totals(),
            added([]),
            options,
            longest_span=300,
            predicted=False,
        )
    }["next-fit"]
    stream = shuffled(sequences, 3).astype(np.int64)
    whole = measure(stream, pack_next_fit(stream, capacity=1024, max_seqs=1000), capacity=1024)
    assert (found.batches, 1 - found.waste) == (whole.buckets, pytest.approx(whole.fill))
    assert (found.spread, found.peak) == (pytest.approx(whole.spread), pytest.approx(whole.peak))


def test_the_spread_of_a_packing_is_that_of_the_train_split() -> None:
    train = SplitStatistics(capacity=1024, longest=300)
    train.add_costs(np.full(10, 9000))
    pooled = SplitStatistics(capacity=1024, longest=300)
    pooled.add_costs(np.array([9000] * 10 + [50]))  # the valid split has one nearly empty bucket
    empty = SplitStatistics(capacity=1024, longest=300).totals()
    lengths, chosen = Counted.of(np.full(40, 100)), report_settings(1024, 300)

    def packed(of_train: SplitTotals) -> Waste:
        return waste(
            lengths,
            pooled.totals(),
            of_train,
            added([]),
            chosen,
            longest_span=300,
            predicted=False,
        )[-1]

    assert (packed(train.totals()).batches, packed(train.totals()).spread) == (11, 0)
    assert packed(empty).spread == pooled.totals().spread > 0.1


@given(st.lists(st.integers(0, 5), max_size=60))
def test_the_ten_most_repeated_records_are_sorted_by_count_then_by_ordinal(
    times: list[int],
) -> None:
    expected = sorted((i for i, count in enumerate(times) if count), key=lambda i: (-times[i], i))[
        :10
    ]
    assert most_repeated(np.array(times, dtype=np.uint32)) == expected


@given(st.binary(max_size=300))
def test_counts_of_bytes_equal_those_of_bincount(values: bytes) -> None:
    found = np.ones(256, dtype=np.int64)
    count_values(np.frombuffer(values, dtype=np.uint8), found)
    assert (found - 1).tolist() == np.bincount(
        np.frombuffer(values, dtype=np.uint8), minlength=256
    ).tolist()


def test_merged_statistics_of_two_splits_equal_those_of_one_split() -> None:
    rng = np.random.default_rng(1)
    one, parts = (
        SplitStatistics(capacity=100, longest=50),
        [SplitStatistics(capacity=100, longest=50) for _ in range(2)],
    )
    for part in parts:
        cost = rng.integers(100, 5000, 40)
        part.add_costs(cost)
        one.add_costs(cost)
    assert together(part.totals() for part in parts) == one.totals()
    found = added(
        distribution_of(histogram)
        for histogram in (*(part.histograms()["cost"] for part in parts), None)
    )
    assert found == distribution_of(one.histograms()["cost"])


def test_a_distribution_without_values_is_empty() -> None:
    assert (
        added(
            [distribution_of(None), distribution_of(Histogram(first=0, width=1, counts=()))]
        ).edges
        == ()
    )
    assert histogram(Counted.of(np.empty(0, dtype=np.int64))).counts == ()
