"""Packing and hashing of tokens, and the partitions, splits and shuffle keys that hashes give."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pipeline.build.arrays.sequence_hashes import (
    HASH,
    partitions_of,
    sequence_hashes,
    shuffle_keys,
    split_of,
    split_of_keys,
    window_starts,
)
from pipeline.build.spill.spill_kernel import pack, unpack
from schemas.shard import SPLITS
from schemas.split_fractions import SplitFractions

runs = st.lists(st.lists(st.integers(0, 31), max_size=40), min_size=1, max_size=8)


def laid_out(values: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum([len(run) for run in values], dtype=np.int64)
    return np.array([v for run in values for v in run] or [0], dtype=np.uint8), ends


@given(runs, st.integers(0, 2**32 - 1))
def test_sequences_packed_in_any_order_are_unpacked_unchanged(
    values: list[list[int]], seed: int
) -> None:
    tokens, ends = laid_out(values)
    order = np.random.default_rng(seed).permutation(ends.size)
    begin, end = np.append(0, ends[:-1])[order], ends[order]
    size = int(((5 * (end - begin) + 7) // 8).sum())
    packed = np.full(size + 3, 255, dtype=np.uint8)
    pack(tokens, begin, end, packed)
    out = np.zeros(int(ends[-1]), dtype=np.uint8)
    unpack(packed[:size].copy(), end - begin, out)
    assert out.tolist() == [v for i in order for v in values[i]]


@given(runs)
def test_hashes_match_the_xxhash_library(values: list[list[int]]) -> None:
    tokens, ends = laid_out(values)
    hashes = sequence_hashes(tokens, ends)
    assert [h.tobytes() for h in hashes] == [xxhash.xxh3_128_digest(bytes(run)) for run in values]


def test_hashes_match_the_xxhash_library_for_each_length_class_of_xxh3() -> None:
    # XXH3 changes its algorithm at 17, 129 and 241 bytes, and works in blocks of 1,024 bytes
    lengths = np.array([*range(600), 1023, 1024, 1025, 16_384, 100_000])
    ends = np.cumsum(lengths)
    tokens = np.random.default_rng(5).integers(0, 256, int(ends[-1]), dtype=np.uint8)
    expected = [
        xxhash.xxh3_128_digest(tokens[end - length : end])
        for length, end in zip(lengths, ends, strict=True)
    ]
    assert [h.tobytes() for h in sequence_hashes(tokens, ends)] == expected


def random_hashes(count: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, 16 * count, dtype=np.uint8).view(HASH)


def six_sigma(share: float, count: int) -> float:
    """Return six standard deviations of a share that is measured in `count` independent draws."""
    return 6 * float(np.sqrt(share * (1 - share) / count))


def test_partitions_and_splits_get_their_shares_and_are_independent_of_each_other() -> None:
    hashes = random_hashes(200_000)
    fractions = SplitFractions.parse("train=0.85,valid=0.1,test=0.05")
    partition, split = partitions_of(hashes, 7), split_of(hashes, fractions)
    counts = np.bincount(partition, minlength=7)
    assert counts.size == 7
    assert abs(counts / 200_000 - 1 / 7).max() < six_sigma(1 / 7, 200_000)
    for code, name in enumerate(SPLITS):
        share = float(fractions.share(name))
        chosen = split == code
        assert abs(chosen.mean() - share) < six_sigma(share, 200_000)
        for p in range(7):
            assert abs(chosen[partition == p].mean() - share) < six_sigma(share, int(counts[p]))
    for code, name in enumerate(SPLITS):
        assert (split_of(hashes, SplitFractions.parse(f"{name}=1")) == code).all()


def test_the_limits_between_splits_are_exact() -> None:
    """Each split begins exactly at the key round(share · 2^53) · 2^11.

    Here, `share` is the sum of the shares of all earlier splits.
    """
    limits = [round(Fraction(share) * 2**53) for share in ("0.125", "0.425")]
    keys = [0, *((limit << 11) + step for limit in limits for step in (-1, 0)), 2**64 - 1]
    found = split_of_keys(
        np.array(keys, dtype=np.uint64), SplitFractions.parse("valid=0.125,test=0.3")
    )
    assert [SPLITS[code] for code in found] == ["valid", "valid", "test", "test", "train", "train"]


def test_adding_a_test_split_does_not_change_the_valid_split() -> None:
    hashes = random_hashes(10_000)
    two = split_of(hashes, SplitFractions.parse("train=0.9,valid=0.1"))
    three = split_of(hashes, SplitFractions.parse("train=0.7,valid=0.1,test=0.2"))
    assert ((two == SPLITS.index("valid")) == (three == SPLITS.index("valid"))).all()


def test_random_windows_begin_at_each_possible_residue_equally_often() -> None:
    keys = np.random.default_rng(0).integers(0, 1 << 64, 100_000, dtype=np.uint64)
    residues = np.full(keys.size, 100 + 9)
    counts = np.bincount(window_starts(keys, residues, 100), minlength=10)
    assert counts.size == 10
    # five standard deviations of a binomial count
    assert np.abs(counts - 10_000).max() < 5 * (100_000 * 0.1 * 0.9) ** 0.5


def test_a_window_stays_inside_its_record() -> None:
    keys = np.array([0, 1, 1 << 63, (1 << 64) - 1, 77], dtype=np.uint64)
    residues = np.array([0, 99, 100, 101, 40_000])
    starts = window_starts(keys, residues, 100)
    assert (starts[:3] == 0).all()
    assert ((starts >= 0) & (starts <= np.maximum(residues - 100, 0))).all()


def test_shuffle_keys_depend_on_each_of_their_inputs() -> None:
    hashes, zeros = random_hashes(1000), np.zeros(1000, dtype=np.int64)
    keys = shuffle_keys(hashes, zeros, zeros, 0)
    assert np.unique(keys).size == 1000
    for other in (
        shuffle_keys(hashes, zeros, zeros, 1),
        shuffle_keys(hashes, zeros + 1, zeros, 0),
        shuffle_keys(hashes, zeros, zeros + 1, 0),
    ):
        assert (keys != other).all()
    # The order by key must be independent of the order by hash. Between independent orders of
    # 1,000 items, the rank correlation has a standard deviation of 1 / √999.
    ranks = [np.argsort(np.argsort(values)) for values in (hashes["high"], keys)]
    assert abs(np.corrcoef(*ranks)[0, 1]) < 6 / 999**0.5
