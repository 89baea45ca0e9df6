"""Errors for wrong Python arguments of readers and adapters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline.reader
from pipeline.reader import Mixture, ShardReader
from pipeline.reader.adapters import (
    bshd,
    flash_attention,
    hugging_face,
    position_ids,
    transformer_engine,
)
from schemas.errors import DatasetError, StateError
from tests.conftest import preprocess


@pytest.fixture(scope="module")
def dataset(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return preprocess(sample, tmp_path_factory.mktemp("arguments") / "dataset")


@pytest.mark.parametrize(
    "name", ["seed", "rank", "world_size", "context_parallel", "buckets_per_step", "prefetch"]
)
@pytest.mark.parametrize("value", ["1", 1.0, None])
def test_the_error_for_an_option_that_is_not_a_whole_number_names_the_option(
    dataset: Path, name: str, value: object
) -> None:
    options: dict[str, Any] = {name: value}
    expected = rf"^{name} is {value!r}, expected a whole number$"
    with pytest.raises(TypeError, match=expected):
        ShardReader(dataset, **options)
    with pytest.raises(TypeError, match=expected):
        Mixture([(dataset, 1)], **options)


@pytest.mark.parametrize("url", [None, 3])
def test_a_dataset_that_is_neither_text_nor_a_path_is_refused(url: Any) -> None:
    expected = f"^url is {url}, expected the folder or URL of a dataset$"
    with pytest.raises(TypeError, match=expected):
        ShardReader(url)
    with pytest.raises(TypeError, match=expected):
        Mixture([(url, 1)])


def test_the_error_for_a_position_that_is_not_a_whole_number_shows_the_value(
    dataset: Path,
) -> None:
    wrong: Any = "x"
    slices: Any = slice(0, 2)
    with ShardReader(dataset, seed=np.int64(3), prefetch=0) as reader:  # type: ignore[arg-type] # numpy's integers work, too
        reader.seek(np.int64(1))  # type: ignore[arg-type] # numpy's integers work, too
        with pytest.raises(TypeError, match=r"^position is 'x', expected a whole number$"):
            reader.seek(wrong)
        with pytest.raises(TypeError, match=r"^position is 'x', expected a whole number$"):
            reader.number_at(wrong)
        with pytest.raises(TypeError, match=r"^the number of a bucket is slice\(0, 2, None\), "):
            reader[slices]
        with pytest.raises(StateError, match=r"^not a reader's state: "):
            reader.load_state_dict(None)  # type: ignore[arg-type] # wrong on purpose
        with pytest.raises(ValueError, match="expected a divisor of 1, which is the number"):
            reader.batches(2)


@pytest.mark.parametrize(
    "adapter", [bshd, flash_attention, hugging_face, position_ids, transformer_engine]
)
def test_an_adapter_refuses_a_reader_instead_of_a_bucket(
    dataset: Path, adapter: Callable[[Any], object]
) -> None:
    with (
        ShardReader(dataset, prefetch=0) as reader,
        pytest.raises(TypeError, match=r"^bucket is a ShardReader, expected a Bucket, "),
    ):
        adapter(reader)


@pytest.mark.parametrize(
    ("misspelt", "ours"),
    [("splt", "split"), ("world_sise", "world_size"), ("cache_dirr", "cache_dir")],
)
def test_the_error_for_a_misspelt_argument_names_the_argument(
    dataset: Path, misspelt: str, ours: str
) -> None:
    options: dict[str, Any] = {misspelt: 1}
    with pytest.raises(
        TypeError, match=f"^ShardReader has no argument {misspelt}: did you mean {ours}"
    ):
        ShardReader(dataset, **options)
    with pytest.raises(
        TypeError, match=f"^Mixture has no argument {misspelt}: did you mean {ours}"
    ):
        Mixture([(dataset, 1)], **options)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("shuffel", "the order is always shuffled, and seed chooses the order"),
        ("batchsize", "use buckets_per_step, "),
        ("Seed", r"did you mean seed\?"),
        ("selff", "its arguments are (url|datasets), split, "),
        ("xyz", "its arguments are (url|datasets), split, "),
    ],
)
def test_the_error_for_an_unknown_argument_says_what_to_write_instead(
    dataset: Path, name: str, advice: str
) -> None:
    options: dict[str, Any] = {name: True}
    with pytest.raises(TypeError, match=f"^ShardReader has no argument {name}: {advice}"):
        ShardReader(dataset, **options)
    with pytest.raises(TypeError, match=f"^Mixture has no argument {name}: {advice}"):
        Mixture([(dataset, 1)], **options)


@pytest.mark.parametrize(
    ("split", "ours"),
    [("validation", "valid"), ("val", "valid"), ("Train", "train"), ("testing", "test")],
)
def test_the_error_for_an_unknown_split_names_the_nearest_split(
    dataset: Path, split: str, ours: str
) -> None:
    expected = rf"no split '{split}'; it has train, valid, test; did you mean {ours}\?$"
    with pytest.raises(DatasetError, match=expected):
        ShardReader(dataset, split=split)
    with pytest.raises(DatasetError, match=expected):
        Mixture([(dataset, 1)], split=split)


def test_the_state_of_a_mixture_and_that_of_a_plain_reader_are_told_apart(dataset: Path) -> None:
    with ShardReader(dataset, prefetch=0) as reader, Mixture([(dataset, 1)], prefetch=0) as mixed:
        with pytest.raises(StateError, match="is of another dataset, or of a mixture: its"):
            reader.load_state_dict(mixed.state_dict())
        with pytest.raises(StateError, match="is of a mixture with another dataset, weight or"):
            mixed.load_state_dict(reader.state_dict())


def test_dir_lists_the_public_names_of_a_package_that_imports_them_at_first_use() -> None:
    needs_torch = ["MaskTokens", "ShardDataset"]
    assert dir(pipeline.reader) == sorted([*pipeline.reader.__all__, *needs_torch])


def test_a_misspelt_attention_implementation_is_refused(dataset: Path) -> None:
    with ShardReader(dataset, prefetch=0) as reader:
        bucket = next(reader)
    assert set(hugging_face(bucket, "eager")) == set(bshd(bucket))
    with pytest.raises(ValueError, match=r"^attn_implementation is 'spda', expected sdpa, eager"):
        hugging_face(bucket, "spda")
