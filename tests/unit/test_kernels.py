"""Compiled kernels against one line of numpy or a library each."""

from __future__ import annotations

import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pipeline.hashing import HASH, in_valid, partitions_of, sequence_hashes, shuffle_keys
from pipeline.spill_kernel import pack, unpack

runs = st.lists(st.lists(st.integers(0, 31), max_size=40), min_size=1, max_size=8)


def laid_out(values: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum([len(run) for run in values], dtype=np.int64)
    return np.array([v for run in values for v in run] or [0], dtype=np.uint8), ends


@given(runs, st.randoms())
def test_unpacking_undoes_packing_in_any_order(values: list[list[int]], random: object) -> None:
    tokens, ends = laid_out(values)
    order = np.random.default_rng(0).permutation(ends.size)
    begin, end = np.append(0, ends[:-1])[order], ends[order]
    size = int(((5 * (end - begin) + 7) // 8).sum())
    packed = np.full(size + 3, 255, dtype=np.uint8)
    pack(tokens, begin, end, packed)
    out = np.zeros(int(ends[-1]), dtype=np.uint8)
    unpack(packed[:size].copy(), end - begin, out)
    assert out.tolist() == [v for i in order for v in values[i]]


@given(runs)
def test_hashes_are_those_of_the_xxhash_library(values: list[list[int]]) -> None:
    tokens, ends = laid_out(values)
    hashes = sequence_hashes(tokens, ends)
    assert [h.tobytes() for h in hashes] == [xxhash.xxh3_128_digest(bytes(run)) for run in values]


def random_hashes(count: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, 16 * count, dtype=np.uint8).view(HASH)


def test_partitions_and_split_are_even_and_independent() -> None:
    hashes = random_hashes(200_000)
    partition, valid = partitions_of(hashes, 7), in_valid(hashes, 0.1)
    counts = np.bincount(partition, minlength=7)
    assert counts.size == 7
    assert abs(counts / 200_000 - 1 / 7).max() < 0.005
    assert abs(valid.mean() - 0.1) < 0.005
    assert all(abs(valid[partition == p].mean() - 0.1) < 0.01 for p in range(7))
    assert not in_valid(hashes, 0.0).any()
    assert in_valid(hashes, 1.0).all()


def test_shuffle_keys_depend_on_each_of_their_inputs() -> None:
    hashes, zeros = random_hashes(1000), np.zeros(1000, dtype=np.int64)
    keys = shuffle_keys(hashes, zeros, zeros, 0)
    assert np.unique(keys).size == 1000
    for other in (shuffle_keys(hashes, zeros, zeros, 1), shuffle_keys(hashes, zeros + 1, zeros, 0), shuffle_keys(hashes, zeros, zeros + 1, 0)):
        assert (keys != other).all()
    # no trace of the hash's order is left
    assert abs(np.corrcoef(np.argsort(np.argsort(hashes["high"])), np.argsort(np.argsort(keys)))[0, 1]) < 0.1
