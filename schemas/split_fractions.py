"""Shares of the records in each split: the value of `--split`, such as `train=0.99,valid=0.01`."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Final, Self

from schemas.shard import SPLITS

_MOST_DECIMALS: Final = 15
_FEWEST_ASIDE: Final = 20
"""A larger share that `larger` suggests for an empty split yields about this many records."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitFractions:
    """Share of the records in each split, from 0 to 1. The shares add up to 1."""

    train: Decimal
    valid: Decimal
    test: Decimal

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the value of --split. A split that is not named has no records, except train, which
        has the rest.

        Raises:
            ValueError: a split is unknown or named twice, a share is not a number from 0 to 1, or
                the shares do not add up to 1.
        """
        shares: dict[str, Decimal] = {}
        for part in text.split(","):
            name, _, share = (word.strip() for word in part.partition("="))
            if name not in SPLITS:
                word, mark, given = name.partition(":")
                meant = difflib.get_close_matches(word, SPLITS, n=1)
                hint = f". Did you mean {meant[0]}{f'={given}' * bool(mark)}?" if meant else ""
                raise ValueError(
                    f"--split has {part.strip()!r}, expected train, valid or test with a share, "
                    f"such as valid=0.01{hint}"
                )
            if name in shares:
                raise ValueError(f"--split is {text!r}, which names {name} twice: remove one")
            shares[name] = _share(name, share)
        total = sum(shares.values(), Decimal(0))
        if total > 1 or ("train" in shares and total < 1):
            raise ValueError(
                f"--split is {text!r}, whose shares add up to {total.normalize():f}, expected 1: "
                "if train is not named, it gets the rest"
            )
        train = {"train": 1 - total}
        return cls(**{**dict.fromkeys(SPLITS, Decimal(0)), **train, **shares})

    def __str__(self) -> str:
        """Return a text that `parse` reads. Equal shares have equal texts. Splits with share 0 are
        left out."""
        shares = {split: self.share(split) for split in SPLITS}
        return ",".join(
            f"{split}={share.normalize():f}" for split, share in shares.items() if share
        )

    def share(self, split: str) -> Decimal:
        """Return the share of a split."""
        share: Decimal = getattr(self, split)
        return share

    def larger(self, split: str, records: int) -> str:
        """Return a value of --split that would fill a split that is empty, and what it would do;
        "" if there is no such value.

        Args:
            records: number of records to divide.
        """
        hundredth = Decimal("0.01")
        if split == "train":
            others = {name: min(self.share(name), hundredth) for name in SPLITS[1:]}
            shares = {**others, "train": 1 - sum(others.values(), Decimal(0))}
        else:
            needed = math.ceil(100 * _FEWEST_ASIDE / max(records, 1)) * hundredth
            share = min(Decimal("0.5"), max(hundredth, needed))
            shares = {split: share, "train": self.train - (share - self.share(split))}
        if records < 2 or shares[split] <= self.share(split) or shares["train"] <= 0:
            return ""
        aside = round(shares[split] * records)
        return f"--split {replace(self, **shares)} would set aside about {aside}"


def _share(split: str, text: str) -> Decimal:
    """Read the share of one split in the value of --split.

    Raises:
        ValueError: the text is not a number from 0 to 1, or has too many decimals.
    """
    try:
        share = Decimal(text)
    except InvalidOperation:
        share = Decimal("NaN")
    if not (share.is_finite() and 0 <= share <= 1):
        remedy = ", such as 0.01"
        if share.is_finite() and 1 < share <= 100:
            remedy = f": for {text} %, write {(share / 100).normalize():f}"
        raise ValueError(
            f"--split gives {split} the share {text!r}, expected a number from 0 to 1{remedy}"
        )
    exponent = share.normalize().as_tuple().exponent
    if isinstance(exponent, int) and exponent < -_MOST_DECIMALS:
        raise ValueError(
            f"--split gives {split} the share {text}, expected at most {_MOST_DECIMALS} decimals"
        )
    return share
