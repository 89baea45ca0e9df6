"""Shares of the records in each split: the value of `--split`, such as `train=0.99,valid=0.01`."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, Self

from schemas.shard import SPLITS

_MOST_DECIMALS: Final = 15


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
                raise ValueError(
                    f"--split has {part.strip()!r}, expected train, valid or test with a share, "
                    "such as valid=0.01"
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
        raise ValueError(
            f"--split gives {split} the share {text!r}, expected a number from 0 to 1, such as 0.01"
        )
    exponent = share.normalize().as_tuple().exponent
    if isinstance(exponent, int) and exponent < -_MOST_DECIMALS:
        raise ValueError(
            f"--split gives {split} the share {text}, expected at most {_MOST_DECIMALS} decimals"
        )
    return share
