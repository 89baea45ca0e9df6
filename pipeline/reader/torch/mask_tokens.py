"""Labels for masked language modeling, as a transform for `ShardDataset`.

`thdpack train` does not use this module: it masks on the GPU, which costs the CPU nothing. Use this
module for other training loops. On packed rows, both choose the same tokens for the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pipeline.reader.adapters import bshd
from schemas.shard import Bucket
from schemas.splitmix import GAMMA, mix, mix_all
from schemas.vocabulary import ESM2, Vocabulary

STANDARD_RESIDUES: Final = "ACDEFGHIKLMNPQRSTVWY"
IGNORED: Final = -100
"""Label of tokens that are not predicted: the default ignore_index of cross_entropy."""
_ONE: Final = 1 << 24
"""Hashes below `p * _ONE`, out of `_ONE`, have the probability p."""


@dataclass(frozen=True, kw_only=True)
class MaskTokens:
    """Lays out a bucket, masks some of its residues, and adds their labels.

    80 % of the chosen residues become `<mask>`, 10 % become a random standard residue, and 10 %
    stay unchanged. The choice depends only on the seed, on the bucket's epoch and position, and on
    the index of the token in the flattened input_ids. It is therefore the same for any number of
    workers and ranks, and after a resume.

    layout: function that returns the model's arguments for a bucket, among them input_ids, an
        integer array of any shape; see `pipeline.reader.adapters`
    probability: share of residues to predict, from 0 to 1
    seed: seed of the choice, from 0 to 2^63 - 1
    vocabulary: vocabulary of the dataset
    """

    layout: Callable[[Bucket], Mapping[str, Any]] = bshd
    probability: float = 0.15
    seed: int = 0
    vocabulary: Vocabulary = ESM2

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability is {self.probability}, expected 0 ≤ probability ≤ 1")
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed is {self.seed}, expected 0 ≤ seed < 2^63")

    def __call__(self, bucket: Bucket) -> dict[str, Any]:
        """Return the layout's arguments with masked input_ids and with labels.

        Returns:
            The arguments of `layout`, in which input_ids is masked, int64[shape of input_ids], and
            labels int64[shape of input_ids]: the original id of each chosen token, -100 elsewhere.
        """
        row = self.layout(bucket)
        ids = np.asarray(row["input_ids"]).astype(np.int64)
        letters = self.vocabulary.letters
        hashes = self._hashes(bucket, ids.size).reshape(ids.shape)
        chosen = np.isin(ids, list(letters.values()))
        chosen &= (hashes & np.uint64(_ONE - 1)) < round(self.probability * _ONE)
        fate = (hashes >> np.uint64(24)) & np.uint64(_ONE - 1)
        standard = np.array([letters[letter] for letter in STANDARD_RESIDUES])
        drawn = standard[(hashes >> np.uint64(48)) * np.uint64(standard.size) >> np.uint64(16)]
        hidden = np.where(fate < round(0.9 * _ONE), drawn, ids)
        hidden[fate < round(0.8 * _ONE)] = self.vocabulary.id("<mask>")
        return {
            **row,
            "input_ids": np.where(chosen, hidden, ids),
            "labels": np.where(chosen, ids, IGNORED),
        }

    def _hashes(self, bucket: Bucket, tokens: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Return a hash for each token, uint64[tokens]; trainer/masking.py computes the same."""
        key = np.uint64(mix_all(self.seed, bucket.epoch, bucket.position))
        return mix(key + np.arange(tokens, dtype=np.uint64) * np.uint64(GAMMA))
