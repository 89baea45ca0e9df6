"""Phrases of messages: a number with its noun, a duration, commands that help."""

from __future__ import annotations

from pathlib import Path
from typing import Final

RIGHTS: Final = "docs/guides/data.md lists the rights that thdpack needs"
STORE_REFUSES: Final = (
    "the right to read (s3:GetObject) is missing, or the file does not exist (without the right "
    f"s3:ListBucket, S3 says the same about both); {RIGHTS}"
)
REBUILD: Final = (
    "the dataset is damaged; restore the file from a copy, or build the dataset again from all its "
    "inputs, with thdpack preprocess and --overwrite"
)
_ROOT: Final = Path(__file__).resolve().parents[2]
"""Root of the repository, or a folder of site-packages if a wheel was installed."""


def plural(number: int, noun: str, ending: str = "s") -> str:
    """Return a number with its noun, such as `3 records`, `1 record` or `2 batches`."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def plural_of(one: str, many: str, number: int) -> str:
    """Return a number with a noun of irregular plural, such as `1 entry` or `3 entries`."""
    return f"{number:,} {one if number == 1 else many}"


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit, from `under a minute` to days."""
    if seconds < 60:
        return "under a minute"
    if seconds < 3600:
        return f"{seconds / 60:,.1f} minutes"
    return f"{seconds / 3600:,.1f} hours" if seconds < 72 * 3600 else f"{seconds / 86400:,.1f} days"


def about(seconds: float) -> str:
    """Return an estimated duration, such as `about 6.0 minutes` or `under a minute`."""
    return duration(seconds) if seconds < 60 else f"about {duration(seconds)}"


def install_command(extra: str) -> str:
    """Return the command that installs thdpack with an extra.

    In a checkout, the command installs the checkout, and works in any folder. If a wheel was
    installed, pip finds the wheel, and adds the extra's packages.
    """
    if not (_ROOT / "pyproject.toml").is_file():
        return f'pip install "thdpack[{extra}]"'
    return f"pip install -e '{'.' if Path.cwd() == _ROOT else _ROOT}[{extra}]'"


def percent_of_tokens(share: float) -> str:
    """Return a share, such as a fill, in percent with two decimals, such as "99.97".

    A share below 1 has as many more decimals as it needs not to look like 100.
    """
    for digits in range(2, 9):
        text = f"{100 * share:.{digits}f}"
        if share >= 1 or float(text) < 100:
            break
    return text
