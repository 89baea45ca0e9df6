"""Hash sequences, and derive partitions, splits and shuffle keys from the hashes."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.bucket_kernel import gather
from pipeline.build.arrays.hash_kernel import xxh3_128_digests
from schemas.shard import SPLITS
from schemas.split_fractions import SplitFractions
from schemas.splitmix import mix, mix_all

HASH: Final = np.dtype([("high", ">u8"), ("low", ">u8")])
"""The 16 digest bytes of an xxh3_128, as two big-endian integers."""
_ASCENDING: Final = ("valid", "test", "train")
"""Splits in ascending order of their keys (see `split_of_keys`)."""


def sequence_hashes(tokens: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.void]:
    """Return the xxh3_128 of the residue tokens of each uncropped sequence.

    Args:
        tokens: uint8[T], all sequences end to end.
        ends: int64[N], index after each sequence's last token.
    Returns:
        HASH[N].
    """
    digests = np.empty(16 * ends.size, dtype=np.uint8)
    if ends.size:
        xxh3_128_digests(tokens, ends, digests)
    return digests.view(HASH)


def first_piece_hashes(
    tokens: NDArray[np.uint8], ends: NDArray[np.int64], hashes: NDArray[np.void], most: int
) -> NDArray[np.void]:
    """Return the xxh3_128 of the first `most` residue tokens of each sequence.

    Training uses only these tokens of a truncated sequence. Therefore the partition and the split
    depend only on them.

    Args:
        tokens: uint8[T], all sequences end to end.
        ends: int64[N], index after each sequence's last token.
        hashes: HASH[N], hashes of the whole sequences.
    Returns:
        HASH[N]; `hashes` itself if no sequence is longer than `most`.
    """
    begin = np.concatenate(([0], ends[:-1]))
    long = np.flatnonzero(ends - begin > most)
    if long.size == 0:
        return hashes
    pieces = np.empty(long.size * most, dtype=np.uint8)
    gather(tokens, begin[long], begin[long] + most, pieces)
    found = hashes.copy()
    found[long] = sequence_hashes(pieces, most * np.arange(1, long.size + 1))
    return found


def partitions_of(hashes: NDArray[np.void], partitions: int) -> NDArray[np.int64]:
    """Return the partition of each sequence, int64[N] in 0..partitions - 1.

    The partition depends on the upper 32 bits of the hash.
    """
    upper = (hashes["high"].astype(np.uint64) >> np.uint64(32)) * np.uint64(partitions)
    return (upper >> np.uint64(32)).astype(np.int64)


def split_hashes(first_pieces: NDArray[np.void], clusters: NDArray[np.uint64]) -> NDArray[np.void]:
    """Return the hashes that decide the splits, HASH[N].

    If a record has a cluster, SplitMix64's output for the key of the cluster (`mix`) replaces the
    lower half of the record's hash. Therefore all records of a cluster are in the same split.

    Args:
        first_pieces: HASH[N], hash of each record's first piece (see `first_piece_hashes`).
        clusters: uint64[N], key of each record's cluster, 0 for none.
    """
    clustered = np.flatnonzero(clusters)
    if clustered.size == 0:
        return first_pieces
    found = first_pieces.copy()
    found["low"][clustered] = mix(clusters[clustered])
    return found


def split_of(hashes: NDArray[np.void], fractions: SplitFractions) -> NDArray[np.int8]:
    """Return the split of each sequence, int8[N]: index into SPLITS.

    The split depends on the lower half of the hash, so that it is independent of the partition.
    """
    return split_of_keys(hashes["low"].astype(np.uint64), fractions)


def split_of_keys(keys: NDArray[np.uint64], fractions: SplitFractions) -> NDArray[np.int8]:
    """Return the split of each key, int8[N]: index into SPLITS.

    The lowest keys are in valid, the next in test, and all others in train. Therefore a record of
    valid stays in valid if a test split is added.

    Args:
        keys: uint64[N], uniformly distributed. The upper 53 bits decide.
    """
    limits, share = [], Fraction(0)
    for split in _ASCENDING[:-1]:
        share += Fraction(fractions.share(split))
        limits.append(round(share * 2**53))
    codes = np.array([SPLITS.index(split) for split in _ASCENDING], dtype=np.int8)
    place = np.searchsorted(np.array(limits, dtype=np.uint64), keys >> np.uint64(11), side="right")
    return codes[place]


def window_starts(
    keys: NDArray[np.uint64], residues: NDArray[np.int64], most: int
) -> NDArray[np.int64]:
    """Return the first residue of a random window of each record, int64[N].

    All windows of `most` residues are equally likely. If a record has at most `most` residues, the
    window is the whole record, and its start is 0.

    Args:
        keys: uint64[N], sort keys of the shuffle (see `shuffle_keys`).
        residues: int64[N], number of residues of each record.
    """
    uniform = (mix(~keys) >> np.uint64(11)).astype(np.float64) * 2.0**-53  # in [0, 1)
    starts: NDArray[np.int64] = (uniform * (np.maximum(residues - most, 0) + 1)).astype(np.int64)
    return starts


def shuffle_keys(
    hashes: NDArray[np.void], ordinals: NDArray[np.int64], pieces: NDArray[np.int64], seed: int
) -> NDArray[np.uint64]:
    """Return sort keys of the global shuffle, uint64[N].

    A key depends on the seed and on the sequence's hash, ordinal and piece index. SplitMix64
    (`mix_all`) mixes these values into the key, one after another.

    Args:
        hashes: HASH[N], hash of each sequence's record.
        ordinals: int64[N], ordinal of each sequence's record: its number among all input records.
        pieces: int64[N], index of each sequence within its record, from 0.
    """
    key = mix(np.full(hashes.size, seed, dtype=np.uint64))
    for part in (hashes["high"], hashes["low"], ordinals, pieces):
        key = mix(key ^ part.astype(np.uint64))
    return key


def variant_seed(seed: int, variant: int) -> int:
    """Return the seed of a variant's shuffle and random windows. For variant 0, it is `seed`."""
    return mix_all(seed, variant) if variant else seed
