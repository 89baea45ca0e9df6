"""Types of the columns of --metadata, and conversion of values to these types.

An empty text is null. In columns of numbers and booleans, the texts in MISSING are null, too.
NaN is null, because comparisons with NaN are surprising: polars counts it as the largest number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from schemas.records import ColumnType, arrow_type

MISSING: Final = ("", "NA", "N/A", "<NA>", "NaN", "nan", "null", "NULL", "None")
"""Texts that mean "no value". In a column of texts, only the first one (the empty text) does."""
_BOOLEANS: Final = ("true", "True", "TRUE", "false", "False", "FALSE")
_FLOAT: Final = r"^-?((0|[1-9][0-9]{0,17})(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?|inf)$"
"""Texts that count as floating-point numbers. Numbers with leading zeros, such as `007`, do not
match, because they may be identifiers. Numbers with 19 or more digits before the point do not
match, because a float would lose digits."""


class TextTypes:
    """Finds the narrowest type that fits all values of each text column: bool, int, float, or
    string. The order of the rows does not matter."""

    def __init__(self, names: Sequence[str]) -> None:
        self._possible: dict[str, list[ColumnType]] = {
            name: ["bool", "int", "float"] for name in names
        }
        self._stated = dict.fromkeys(names, False)

    @property
    def types(self) -> dict[str, ColumnType]:
        """Types that fit the values so far. A column without values has the type string."""
        return {
            name: kinds[0] if kinds and self._stated[name] else "string"
            for name, kinds in self._possible.items()
        }

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the values of a batch of text columns."""
        for name, kinds in self._possible.items():
            if kinds:
                texts = batch.column(name)
                values = texts.filter(pc.invert(_is_missing(texts)))
                if len(values):
                    self._stated[name] = True
                    self._possible[name] = [kind for kind in kinds if _fits(values, kind)]


def _fits(values: pa.Array, kind: ColumnType) -> bool:
    if kind == "bool":
        return bool(pc.all(pc.is_in(values, pa.array(_BOOLEANS))).as_py())
    if kind == "float":
        return bool(pc.all(pc.match_substring_regex(values, _FLOAT)).as_py())
    try:
        numbers = pc.cast(values, pa.int64())
    except pa.ArrowInvalid:
        return False
    # `007`, `+7` and `0x7` count as texts, because as numbers they would all become `7`
    return bool(pc.all(pc.equal(pc.cast(numbers, pa.string()), values)).as_py())


def _is_missing(texts: pa.Array) -> pa.Array:
    return pc.is_in(texts, pa.array(MISSING))


def _without_empty(texts: pa.Array) -> pa.Array:
    """Return texts in which empty texts are null."""
    return pc.if_else(pc.equal(pc.binary_length(texts), 0), pa.scalar(None, pa.string()), texts)


def text_array(texts: pa.Array, kind: ColumnType) -> pa.Array:
    """Return the values of a text column in the type that `TextTypes` found."""
    if kind == "string":
        return _without_empty(texts)
    stated = pc.if_else(_is_missing(texts), pa.scalar(None, pa.string()), texts)
    return pc.cast(stated, arrow_type(kind))


def type_of(kind: pa.DataType) -> ColumnType | None:
    """Return the type of a column of a Parquet or Arrow file; None if the type is refused.

    Dates and decimals become texts. Times are refused, because their texts depend on the unit.
    """
    if pa.types.is_dictionary(kind):
        return type_of(kind.value_type)
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_floating(kind):
        return "float"
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    texts = texts or pa.types.is_string_view(kind) or pa.types.is_null(kind)
    return "string" if texts or pa.types.is_date(kind) or pa.types.is_decimal(kind) else None


def table_array(values: pa.Array, kind: ColumnType) -> pa.Array:
    """Return the values of a column of a Parquet or Arrow file in its final type.

    Raises:
        pa.ArrowInvalid: a whole number does not fit into a signed 64-bit integer.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    found = pc.cast(values, arrow_type(kind))
    if kind == "string":
        return _without_empty(found)
    if kind == "float":
        return pc.if_else(pc.is_nan(found), pa.scalar(None, pa.float64()), found)
    return found


def key_array(values: pa.Array) -> pa.Array:
    """Return the key column of a Parquet or Arrow file as texts."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return pc.cast(values, pa.string())
