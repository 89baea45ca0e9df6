"""Parse the value that names a generation of a dataset: a number, "latest", or a digest.

Each build, append or compaction leaves a new state of the dataset, called a generation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import index
from typing import Final

Generation = int | str
"""A number from 1, LATEST, or the digest of the generation's manifest in 32 hexadecimal digits."""
LATEST: Final = "latest"
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


def parse_generation(value: object, *, name: str = "generation") -> Generation:
    """Return a generation as a number, LATEST or a digest. None means LATEST.

    Args:
        value: number, or text, such as "3" or "latest".
        name: name of the option or argument, for the error.
    Raises:
        ValueError: the value does not name a generation.
    """
    if value is None:
        return LATEST
    if isinstance(value, str):
        word = value.strip().lower()
        if word == LATEST or _DIGEST.fullmatch(word):
            return word
        number = int(word) if _NUMBER.fullmatch(word) else 0
    else:
        try:
            number = index(value)  # type: ignore[arg-type] # other types raise TypeError
        except TypeError:
            number = 0
    if number < 1:
        shown = value if isinstance(value, str) else repr(value)
        raise ValueError(
            f"{name} is {shown}, expected the number of a generation (from 1), latest, or the "
            "digest of a generation's manifest (32 hexadecimal digits)"
        )
    return number


def generation_of_each(
    values: Sequence[object], datasets: int, *, name: str = "generations"
) -> tuple[Generation, ...]:
    """Return the generation of each of several datasets.

    Args:
        values: one value for each dataset, in their order. Nothing, or only LATEST, means the
            latest generation of every dataset.
        datasets: number of datasets.
        name: name of the option or argument, for errors.
    Raises:
        ValueError: a value does not name a generation, or the number of values is wrong.
    """
    found = tuple(parse_generation(value, name=name) for value in values)
    if found in ((), (LATEST,)):
        return (LATEST,) * datasets
    if len(found) != datasets:
        raise ValueError(
            f"{name} names {len(found)} generation{'s' * (len(found) > 1)} for {datasets} "
            f"dataset{'s' * (datasets != 1)}: name one for each dataset, in the order of the "
            "datasets"
        )
    return found
