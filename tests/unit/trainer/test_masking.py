"""Masks: choice and number of masked tokens, their replacements, and the random seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from schemas import splitmix
from schemas.vocabulary import ESM2
from trainer.masking import IGNORED, STANDARD_RESIDUES, Masked, Masker, index_size, mix

CPU = torch.device("cpu")
MASK = ESM2.id("<mask>")


def masker(seed: int = 1, probability: float = 0.15, epoch_buckets: int = 1000) -> Masker:
    return Masker(ESM2, seed=seed, probability=probability, epoch_buckets=epoch_buckets, device=CPU)


def row(tokens: int, seed: int = 0) -> Tensor:
    return torch.randint(
        0, 33, (tokens,), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8
    )


def at(*positions: int) -> Tensor:
    return torch.tensor(positions, dtype=torch.int64)


def same(a: Masked, b: Masked) -> bool:
    return all(
        torch.equal(getattr(a, name), getattr(b, name))
        for name in ("input_ids", "index", "labels", "overflow")
    )


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_the_hash_in_torch_equals_splitmix64_in_numpy(values: list[int]) -> None:
    numbers = np.array(values, dtype=np.uint64)
    assert np.array_equal(
        mix(torch.from_numpy(numbers.view(np.int64))).numpy().view(np.uint64), splitmix.mix(numbers)
    )


def test_only_residues_are_masked_and_labels_are_the_original_tokens() -> None:
    ids = row(20_000)
    masked = masker()(ids, at(7))
    real = masked.labels != IGNORED
    places = masked.index[real]
    assert torch.equal(masked.labels[real], ids.long()[places])
    assert bool((ids[places] >= 4).all())
    assert bool((ids[places] <= 30).all())
    untouched = torch.ones(20_000, dtype=torch.bool)
    untouched[places] = False
    assert torch.equal(masked.input_ids[untouched], ids.long()[untouched])
    assert torch.equal(places, places.unique())
    assert not masked.index[~real].any()
    assert int(masked.overflow) == 0


def test_masking_follows_the_15_percent_80_10_10_rule_with_standard_residues() -> None:
    ids = torch.full((1_000_000,), ESM2.id("X"), dtype=torch.uint8)
    masked = masker()(ids, at(7))
    real = masked.labels != IGNORED
    became = masked.input_ids[masked.index[real]]
    chosen = int(real.sum())
    for count, total, share in (
        (chosen, 1_000_000, 0.15),
        (int((became == MASK).sum()), chosen, 0.8),
        (int((became == ESM2.id("X")).sum()), chosen, 0.1),
    ):
        assert abs(count - total * share) < 5 * (total * share * (1 - share)) ** 0.5
    others = became[(became != MASK) & (became != ESM2.id("X"))]
    counts = torch.bincount(others, minlength=33)
    standard = [ESM2.id(letter) for letter in STANDARD_RESIDUES]
    assert int(counts[standard].sum()) == others.numel()
    assert bool(
        (abs(counts[standard] - others.numel() / 20) < 5 * (others.numel() / 20) ** 0.5).all()
    )


def test_merging_buckets_does_not_change_their_masks() -> None:
    first, second = row(512, 1), row(512, 2)
    together = masker()(torch.cat([first, second]), at(3, 11))
    alone = [masker()(first, at(3)), masker()(second, at(11))]
    assert torch.equal(together.input_ids, torch.cat([masked.input_ids for masked in alone]))


def test_masks_depend_only_on_seed_epoch_and_position() -> None:
    ids = row(4096)
    base = masker()(ids, at(7))
    assert same(base, masker()(ids, at(7)))
    for other in (
        masker(seed=2)(ids, at(7)),
        masker()(ids, at(8)),
        masker()(ids, at(1007)),
        masker(epoch_buckets=7)(ids, at(7)),
    ):
        changed, also = base.input_ids != ids, other.input_ids != ids
        residues = (ids >= 4) & (ids <= 30)
        count, share = int(changed.sum()), int(also.sum()) / int(residues.sum())
        # the number of residues that two independent masks have in common is binomial
        sigma = (count * share * (1 - share)) ** 0.5
        assert abs(int((changed & also).sum()) - count * share) < 6 * sigma


def test_masked_tokens_that_do_not_fit_in_the_index_are_counted_and_dropped() -> None:
    few = masker(probability=0.01)
    few._threshold = 1 << 23  # select half of all tokens, but the index has room for only 1.6 %
    ids = torch.full((10_000,), 5, dtype=torch.uint8)
    masked = few(ids, at(0))
    room = index_size(10_000, 0.01)
    assert masked.index.numel() == room
    assert bool((masked.labels != IGNORED).all())
    # the number of selected tokens is binomial: allow six standard deviations
    assert abs(int(masked.overflow) + room - 5_000) < 6 * (10_000 * 0.25) ** 0.5


@pytest.mark.parametrize("tokens", [1, 3, 512, 16_384])
@pytest.mark.parametrize("probability", [0.01, 0.15, 0.9])
def test_the_index_of_masked_tokens_has_room_for_six_standard_deviations_above_the_mean(
    tokens: int, probability: float
) -> None:
    size = index_size(tokens, probability)
    assert size <= tokens
    assert (
        size == tokens
        or size >= tokens * probability + 6 * (tokens * probability * (1 - probability)) ** 0.5
    )
