"""`--precision-layers` selects the layers that compute in low precision."""

from __future__ import annotations

import re

import pytest

from schemas.models import ModelOptions
from trainer.config import ComputeOptions
from trainer.model.initialize import build
from trainer.precision import low_layers

SMALL = ModelOptions(layers=3, hidden_size=64, heads=4, ffn_size=128)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", [0, 1, 2, 3, 4, 5, 6]),
        ("inner:0", [0, 1, 2, 3, 4, 5, 6]),
        ("inner:2", [2, 3, 4]),
        ("inner:3", [3]),
        ("2-5", [2, 3, 4, 5]),
        ("0,3,5-6", [0, 3, 5, 6]),
        ("6", [6]),
        ("4,1-4,1", [1, 2, 3, 4]),
        ("3-3", [3]),
    ],
)
def test_the_option_precision_layers_selects_exactly_the_named_layers(
    text: str, expected: list[int]
) -> None:
    found = low_layers(ComputeOptions(precision="fp8-current", precision_layers=text), 7)
    assert [number for number, low in enumerate(found) if low] == expected
    assert len(found) == 7


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "inner",
        "inner:",
        "inner:-1",
        "inner:x",
        "1,",
        ",1",
        "1-",
        "-1",
        "1--2",
        "0 1",
        "1.5",
        "ALL",
        "²",
    ],
)
def test_an_invalid_value_of_precision_layers_is_an_error_with_valid_examples(text: str) -> None:
    with pytest.raises(
        ValueError,
        match=re.escape(
            "expected all, inner:N (all but the first N and the last N), or numbers such as 2-30"
        ),
    ):
        low_layers(ComputeOptions(precision="fp8-current", precision_layers=text), 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("7", "--precision-layers 7: 7 is not a layer or a range FIRST-LAST. This model"),
        ("0,5-7", "5-7 is not a layer"),
        ("5-2", "5-2 is not a layer"),
        ("inner:4", "inner:4 selects none of the 7 layers: use inner:N with N at most 3"),
    ],
)
def test_naming_a_layer_that_does_not_exist_or_selecting_none_is_an_error(
    text: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        low_layers(ComputeOptions(precision="fp8-current", precision_layers=text), 7)


def test_a_bf16_run_has_no_low_precision_layer() -> None:
    assert low_layers(ComputeOptions(precision="bf16"), 3) == [False] * 3


@pytest.mark.parametrize(
    ("numbers", "text", "expected"),
    [
        ("fp8-current", "inner:1", [True, False, True]),
        ("fp8-current", "all", [False] * 3),
        ("bf16", "all", [False] * 3),
    ],
)
def test_in_a_low_precision_run_layers_outside_precision_layers_stay_in_bf16(
    numbers: str, text: str, expected: list[bool]
) -> None:
    """A layer with `stays_bf16` opens an autocast, which costs host time. In a bf16 run, no layer
    needs one."""
    model = build(SMALL, ComputeOptions(backend="torch", precision=numbers, precision_layers=text))
    assert [layer.stays_bf16 for layer in model.layers] == expected
