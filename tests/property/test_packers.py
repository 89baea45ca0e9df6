"""Laws of every packer: each sequence is packed exactly once, and no bucket overflows."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packers import PACKERS
from packers.balanced import pack_balanced
from packers.quality import measure

names = st.sampled_from(sorted(PACKERS))


def bytes_as_lengths(drawn: bytes) -> np.ndarray:
    """Return int64[N], values in 1..64. Hypothesis draws bytes ten times as fast as integers."""
    return np.frombuffer(drawn, dtype=np.uint8).astype(np.int64) % 64 + 1


# without a minimum size, hypothesis draws five bytes on average
drawn_bytes = st.binary(max_size=300) | st.binary(min_size=50, max_size=300)
length_arrays = drawn_bytes.map(bytes_as_lengths)
EXAMPLES = 600 if "THDPACK_LONG" in os.environ else 300


@settings(max_examples=EXAMPLES)
@given(names, length_arrays, st.integers(64, 256), st.integers(1, 40))
def test_every_sequence_is_packed_once_and_no_bucket_overflows(
    name: str,
    array: np.ndarray,
    capacity: int,
    max_seqs: int,
) -> None:
    buckets = PACKERS[name](array, capacity=capacity, max_seqs=max_seqs)
    assert buckets.shape == array.shape
    if array.size:
        assert buckets.min() >= 0
        assert np.bincount(buckets, weights=array).max() <= capacity
        assert np.bincount(buckets).max() <= max_seqs
        assert set(buckets.tolist()) == set(range(buckets.max() + 1))


@settings(max_examples=EXAMPLES)
@given(names, length_arrays, st.integers(64, 256), st.integers(1, 40))
def test_no_bucket_overflows_when_some_sequences_are_left_over(
    name: str,
    array: np.ndarray,
    capacity: int,
    max_seqs: int,
) -> None:
    buckets = PACKERS[name](array, capacity=capacity, max_seqs=max_seqs, final=False)
    placed = buckets[buckets >= 0]
    if placed.size:
        assert np.bincount(placed, weights=array[buckets >= 0]).max() <= capacity
        assert np.bincount(placed).max() <= max_seqs
        assert set(placed.tolist()) == set(range(placed.max() + 1))


@given(names, length_arrays)
def test_packing_is_deterministic(name: str, array: np.ndarray) -> None:
    first, second = (PACKERS[name](array.copy(), capacity=64, max_seqs=8) for _ in range(2))
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize("name", sorted(PACKERS))
@pytest.mark.parametrize(
    ("lengths", "message"),
    [([5, 0], "sequence 1 has 0 tokens"), ([5, 65], "sequence 1 has 65 tokens, expected 1..64")],
)
def test_the_error_for_a_length_that_fits_no_bucket_names_the_sequence(
    name: str, lengths: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PACKERS[name](np.array(lengths), capacity=64, max_seqs=8)


def protein_lengths(count: int) -> np.ndarray:
    """Return int64[count], log-normal lengths as in Swiss-Prot, at most 1,024 tokens each."""
    residues = np.random.default_rng(1).lognormal(5.67, 0.72, count)
    return np.minimum(residues.astype(np.int64) + 2, 1024)


def test_the_balanced_packer_fills_buckets_and_makes_their_costs_nearly_equal() -> None:
    lengths = protein_lengths(120_000)
    balanced = pack_balanced(lengths, capacity=16_384, max_seqs=127, final=False)
    quality = measure(lengths, balanced, capacity=16_384)
    assert quality.fill >= 0.9999
    assert quality.spread <= 0.01
    assert quality.peak <= 1.03
    assert quality.max_seqs <= 63
    best_fit = measure(
        lengths,
        PACKERS["best-fit"](lengths, capacity=16_384, max_seqs=127, final=False),
        capacity=16_384,
    )
    decreasing = measure(
        lengths,
        PACKERS["bfd"](lengths, capacity=16_384, max_seqs=1000, final=False),
        capacity=16_384,
    )
    assert best_fit.spread > 5 * quality.spread
    assert decreasing.spread > 20 * quality.spread


@pytest.mark.parametrize("count", [40, 100, 400, 3000, 30_000, 60_000])
def test_the_balanced_packer_uses_the_fewest_buckets_and_none_costs_much_more_than_the_mean(
    count: int,
) -> None:
    lengths = protein_lengths(count)
    buckets = pack_balanced(lengths, capacity=16_384, max_seqs=127)
    quality = measure(lengths, buckets, capacity=16_384)
    assert quality.buckets == -(-lengths.sum() // 16_384)
    assert quality.peak < 1.02


def test_buckets_of_left_over_sequences_cost_as_much_as_other_buckets() -> None:
    """A call with `final=False` leaves some sequences over. If they are packed together later,
    their buckets have about the same Σ length² as the other buckets.
    """
    lengths = protein_lengths(90_000)
    costs, left = [], []
    for part in np.array_split(lengths, 3):
        buckets = pack_balanced(part, capacity=16_384, max_seqs=127, final=False)
        placed = buckets >= 0
        costs.append(np.bincount(buckets[placed], weights=part[placed].astype(float) ** 2))
        left.append(part[~placed])
    rest = np.concatenate(left)
    buckets = pack_balanced(rest, capacity=16_384, max_seqs=127)
    last = np.bincount(buckets, weights=rest.astype(float) ** 2)
    every = np.concatenate([*costs, last])
    assert every.max() < 1.03 * every.mean()
    assert every.size == -(-lengths.sum() // 16_384)


@settings(max_examples=EXAMPLES)
@given(length_arrays, st.integers(64, 256), st.integers(1, 40))
def test_the_balanced_packer_never_uses_more_buckets_than_next_fit(
    array: np.ndarray, capacity: int, max_seqs: int
) -> None:
    ours, in_order = (
        PACKERS[name](array, capacity=capacity, max_seqs=max_seqs).max(initial=-1)
        for name in ("balanced", "next-fit")
    )
    assert ours <= in_order
