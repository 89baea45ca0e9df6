"""Errors for wrong Python arguments of readers and adapters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.reader import Mixture, ShardReader
from pipeline.reader.adapters import (
    bshd,
    flash_attention,
    hugging_face,
    position_ids,
    transformer_engine,
)
from schemas.errors import StateError
from tests.conftest import preprocess


@pytest.fixture(scope="module")
def dataset(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return preprocess(sample, tmp_path_factory.mktemp("arguments") / "dataset")


@pytest.mark.parametrize(
    "name", ["seed", "rank", "world_size", "context_parallel", "buckets_per_step", "prefetch"]
)
@pytest.mark.parametrize("value", ["1", 1.0, None])
def test_an_option_that_is_no_whole_number_is_named(
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


def test_positions_and_numbers_that_are_no_whole_numbers_are_named(dataset: Path) -> None:
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
            reader.load_state_dict(None)  # type: ignore[arg-type] # this is the test
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


def test_a_misspelt_attention_implementation_is_refused(dataset: Path) -> None:
    with ShardReader(dataset, prefetch=0) as reader:
        bucket = next(reader)
    assert set(hugging_face(bucket, "eager")) == set(bshd(bucket))
    with pytest.raises(ValueError, match=r"^attn_implementation is 'spda', expected sdpa, eager"):
        hugging_face(bucket, "spda")
