"""Values that name a generation of a dataset."""

from __future__ import annotations

import numpy as np
import pytest

from schemas.text.generation import LATEST, generation_of_each, parse_generation

DIGEST = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, LATEST),
        ("latest", LATEST),
        ("Latest", LATEST),
        (3, 3),
        (np.int64(3), 3),
        ("3", 3),
        (" 12 ", 12),
        (DIGEST, DIGEST),
        (DIGEST.upper(), DIGEST),
        ("1" * 32, "1" * 32),
    ],
)
def test_a_generation_is_a_number_latest_or_a_digest(value: object, expected: object) -> None:
    assert parse_generation(value) == expected


@pytest.mark.parametrize("value", [0, -1, "0", "-1", "1.0", 1.0, "", "newest", "²", "1" * 19, []])
def test_other_values_are_refused_with_the_name_of_the_option(value: object) -> None:
    with pytest.raises(ValueError, match=r"^--generation is .*, expected the number of a gener"):
        parse_generation(value, name="--generation")


def test_nothing_and_a_single_latest_mean_the_latest_of_every_dataset() -> None:
    assert generation_of_each((), 3) == generation_of_each(("latest",), 3) == (LATEST,) * 3
    assert generation_of_each(("2", "latest", DIGEST), 3) == (2, LATEST, DIGEST)


@pytest.mark.parametrize(
    ("values", "datasets", "said"),
    [
        (("1",), 2, "names 1 generation for 2 datasets"),
        (("1", "2"), 1, "names 2 generations for 1 dataset:"),
        (("latest", "latest"), 3, "names 2 generations for 3 datasets"),
    ],
)
def test_another_number_of_generations_than_datasets_is_refused(
    values: tuple[str, ...], datasets: int, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        generation_of_each(values, datasets)
