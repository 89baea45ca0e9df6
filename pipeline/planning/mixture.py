"""Mixtures of datasets: parse their weights, and describe one epoch of a mixture.

The trainer and `thdpack plan` both use this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from schemas.manifest import Manifest
from schemas.text.redact import without_credentials


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One dataset of a mixture.

    share: share of the mixture's buckets that come from this dataset.
    buckets, tokens: size of the dataset's train split, which is one epoch of the dataset.
    """

    url: str
    share: Fraction
    buckets: int
    tokens: int

    def tokens_in(self, buckets: float) -> float:
        """Return the expected tokens of this dataset in a number of the mixture's buckets."""
        return buckets * float(self.share) * self.tokens / self.buckets

    def epochs_in(self, buckets: float) -> float:
        """Return how often a number of the mixture's buckets read this dataset."""
        return buckets * float(self.share) / self.buckets


def datasets_of(data: Sequence[str]) -> dict[str, Fraction]:
    """Return the weight of each dataset of --data, by URL.

    Args:
        data: one URL, or several texts of the form URL=WEIGHT.
    Raises:
        ValueError: one of several datasets has no weight, or is named twice.
    """
    if len(data) == 1:
        return {data[0]: Fraction(1)}
    found: dict[str, Fraction] = {}
    for text in data:
        url, _, weight = text.rpartition("=")
        shown = without_credentials(text)
        try:
            share = Fraction(weight)
        except (ValueError, ZeroDivisionError):
            share = Fraction(0)
        if not url or share <= 0:
            raise ValueError(
                f"--data {shown} has no weight above 0: give each of several datasets a weight, "
                "such as --data A=0.7 --data B=0.3"
            )
        if url in found:
            raise ValueError(f"--data names {without_credentials(url)} twice: remove one of them")
        found[url] = share
    return found


def mixed(
    manifests: Sequence[Manifest], weights: Sequence[Fraction], urls: Sequence[str]
) -> Manifest:
    """Return a manifest whose train split describes one epoch of a mixture.

    The epoch ends when one of the datasets is about to repeat for the first time. Sequences, tokens
    and costs of the split are expected values.

    Raises:
        ValueError: the buckets of the datasets differ in size.
    """
    if len(manifests) == 1:
        return manifests[0]
    if len({manifest.capacity for manifest in manifests}) > 1:
        capacities = ", ".join(
            f"{manifest.capacity} in {without_credentials(url)}"
            for url, manifest in zip(urls, manifests, strict=True)
        )
        raise ValueError(
            f"the buckets of --data differ in their number of tokens ({capacities}): build the "
            "datasets with the same --capacity"
        )
    trains = [manifest.splits["train"] for manifest in manifests]
    total = sum(weights)
    shares = [weight / total for weight in weights]
    buckets = min(int(train.buckets / share) for train, share in zip(trains, shares, strict=True))

    def average(field: str) -> int:
        each = (
            share * getattr(train, field) / train.buckets
            for train, share in zip(trains, shares, strict=True)
        )
        return int(buckets * sum(each))

    names = ("sequences", "tokens", "cost_sum", "cost_square_sum")
    split = replace(trains[0], buckets=buckets, **{name: average(name) for name in names})
    return replace(
        manifests[0],
        max_seq_len=max(manifest.max_seq_len for manifest in manifests),
        slots=max(manifest.slots for manifest in manifests),
        splits={**manifests[0].splits, "train": split},
    )


def parts_of(datasets: dict[str, Fraction], manifests: Sequence[Manifest]) -> list[Part]:
    """Return each dataset of a mixture.

    Args:
        datasets: weight of each dataset, by URL.
        manifests: manifest of each dataset, in the same order. No train split is empty.
    """
    total = sum(datasets.values())
    return [
        Part(
            url=url,
            share=weight / total,
            buckets=manifest.splits["train"].buckets,
            tokens=manifest.splits["train"].tokens,
        )
        for (url, weight), manifest in zip(datasets.items(), manifests, strict=True)
    ]
