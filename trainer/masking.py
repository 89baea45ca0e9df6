"""Masking, computed on the device. A hash decides for each token whether and how to mask it. The
inputs of the hash are the seed, the epoch, the bucket's position, and the token's offset in the
bucket.

A bucket therefore has the same mask on any rank and with any world size or backend, and a different
mask in each epoch. Masking launches about twenty small kernels per row.

Source of the hash: SplitMix64 (Steele, Lea & Flood, OOPSLA 2014). schemas/splitmix.py implements
the same hash in numpy. torch supports little uint64 arithmetic. Therefore this module computes in
int64. Addition and multiplication produce the same bits in int64 and uint64, but right shifts do
not. Therefore `_shift` shifts logically.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from schemas.vocabulary import Vocabulary
from trainer.distributed.context_parallel import Slices

_GAMMA: Final = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST: Final = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND: Final = 0x94D049BB133111EB - (1 << 64)
STANDARD_RESIDUES: Final = "ACDEFGHIKLMNPQRSTVWY"
IGNORED: Final = -100
"""Label of unused index entries: the default ignore_index of cross_entropy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Masked:
    """A row after masking, and the tokens to predict in this rank's slice of the row. Without
    context parallelism, the slice is the whole row.

    input_ids: int64[T], the whole masked row.
    index: int64[M], positions (within the slice) of the tokens to predict, followed by zeros.
    labels: int64[M], the original tokens at these positions, followed by IGNORED.
    overflow: int64[], number of tokens to predict that had no room in `index`. This happens in
        about one of 10⁹ rows, because `index` has room for the mean number + 6σ.
    """

    input_ids: Tensor
    index: Tensor
    labels: Tensor
    overflow: Tensor


def index_size(tokens: int, probability: float) -> int:
    """Return the length M of `Masked.index`: the mean + 6σ of Binomial(tokens, probability),
    rounded up to a multiple of 16 and limited to `tokens`.
    """
    room = tokens * probability + 6 * math.sqrt(tokens * probability * (1 - probability))
    return min(tokens, math.ceil(room / 16) * 16)


class Masker:
    """Chooses the tokens to predict. 80 % of them become <mask>, 10 % become a random standard
    residue, and 10 % stay unchanged.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        seed: int,
        probability: float,
        epoch_buckets: int,
        device: torch.device,
        slices: Slices | None = None,
    ) -> None:
        """Args:
        seed: any int64.
        probability: share of residues to predict.
        epoch_buckets: number of buckets in an epoch. Masks depend on position // epoch_buckets and
            on the position.
        slices: division of each row over ranks; None for no division.
        """
        self._slices = slices or Slices()
        self._mask_id = vocabulary.id("<mask>")
        letters = vocabulary.letters
        self._residue = torch.tensor(
            [token in letters for token in vocabulary.tokens] + [False] * (256 - len(vocabulary)),
            device=device,
        )
        self._standard = torch.tensor(
            [letters[letter] for letter in STANDARD_RESIDUES], device=device
        )
        self._seed = mix(torch.tensor(seed, dtype=torch.int64, device=device))
        self._threshold = round(probability * (1 << 24))
        self._probability = probability
        self._epoch_buckets = epoch_buckets

    def __call__(self, input_ids_T: Tensor, positions: Tensor) -> Masked:
        """Mask a row of merged buckets.

        Args:
            input_ids_T: uint8[T], k buckets of T / k tokens.
            positions: int64[k], the buckets' positions in the global order.
        """
        tokens = input_ids_T.numel()
        hash_T = self._hashes(tokens // positions.numel(), positions).view(-1)
        chosen_T = self._residue[input_ids_T.int()] & ((hash_T & 0xFFFFFF) < self._threshold)
        fate_T = (hash_T >> 24) & 0xFFFFFF
        random_T = self._standard[((hash_T >> 48) & 0xFFFF) * len(STANDARD_RESIDUES) >> 16]
        ids_T = input_ids_T.long()
        hidden_T = torch.where(
            fate_T < round(0.8 * (1 << 24)),
            self._mask_id,
            torch.where(fate_T < round(0.9 * (1 << 24)), random_T, ids_T),
        )
        chosen_t = self._slices.own(chosen_T)
        index = torch.nonzero_static(
            chosen_t, size=index_size(chosen_t.numel(), self._probability), fill_value=-1
        ).squeeze(1)
        filled, index = index < 0, index.clamp_min(0)
        return Masked(
            input_ids=torch.where(chosen_T, hidden_T, ids_T),
            index=index,
            labels=self._slices.own(ids_T)[index].masked_fill(filled, IGNORED),
            overflow=(chosen_t.sum() - index.numel()).clamp_min(0),
        )

    def _hashes(self, capacity: int, positions: Tensor) -> Tensor:
        """Return the hash of each token, int64[k, capacity]."""
        epochs = positions // self._epoch_buckets
        keys = mix(mix(self._seed ^ epochs) ^ positions)
        offsets = torch.arange(capacity, dtype=torch.int64, device=positions.device)
        return mix(keys[:, None] + offsets * _GAMMA)


def mix(x: Tensor) -> Tensor:
    """Return SplitMix64's next output for each state, int64[...]. The bits are the same as in
    uint64 arithmetic.
    """
    x = x + _GAMMA
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right logically."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
