"""The filter of `--where`: an SQL expression over the values of a record, evaluated by polars.

The values are those of the record, of its header, and of its row in the table of `--metadata`.

If the expression is true, the record is kept. If the expression is false or null, the record gets
the status `filtered`. A value that a header does not state is null.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.header_arrays import HEADER_ARRAYS, text_array
from pipeline.build.filters.complexity_kernel import low_complexity
from pipeline.build.filters.where_hints import (
    blanks_hint,
    refuse_other_operators,
    regex_hint,
    types_hint,
    without_literals,
)
from pipeline.build.named_files.metadata.lookup import MetadataTable
from pipeline.inputs.headers import HeaderColumns, parse_headers
from pipeline.inputs.record_block import RecordBlock, block_of_texts
from schemas.errors import OptionError
from schemas.records import ColumnType
from schemas.text.phrases import install_command
from schemas.vocabulary import ESM2

if TYPE_CHECKING:
    import polars as pl

AMBIGUOUS: Final = "BXZ"
"""Letters that stand for several residues."""

_COMPUTED: Final[dict[str, Callable[[RecordBlock], NDArray[Any]]]] = {
    "length": lambda block: np.diff(block.ends, prepend=0),
    "unknown_fraction": lambda block: _fraction(block, block.unknown),
    "ambiguous_fraction": lambda block: _fraction(block, _count(block, _is_ambiguous)),
    "low_complexity_fraction": lambda block: _fraction(
        block, _count(block, lambda tokens: low_complexity(tokens, block.ends))
    ),
}
_TEXTS: Final = ("id", "description")
COLUMNS: Final = (*_TEXTS, *HEADER_ARRAYS, *_COMPUTED)
"""Names that an expression may use, in addition to the columns of --metadata."""
Columns = tuple[tuple[str, ColumnType], ...]
"""Names and types of the columns of --metadata."""

_FUNCTIONS: Final = (
    *("abs", "cast", "ceil", "coalesce", "concat", "contains", "ends_with", "floor", "greatest"),
    *("if", "ifnull", "least", "left", "length", "lower", "ltrim", "nullif", "regexp_like"),
    *("replace", "right", "round", "rtrim", "starts_with", "strpos", "substr", "trim", "upper"),
)
"""Functions that an expression may use. Each function uses only the values of one record.
A function of many records, such as an average, would depend on how the input is divided into
tasks."""
_KEYWORDS: Final = ("and", "between", "case", "else", "in", "like", "not", "or", "then", "when")
"""Keywords that may precede a parenthesis and are not functions."""
_CALL: Final = re.compile(r"([A-Za-z_]\w*)\s*\(")


@dataclass(frozen=True, slots=True)
class Where:
    """A checked expression.

    names: columns that the expression uses, without those of --metadata
    metadata: columns of --metadata that the expression uses
    """

    expression: pl.Expr
    names: tuple[str, ...]
    metadata: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that the expression uses."""
        return (*self.names, *self.metadata)

    def keep(
        self,
        block: RecordBlock,
        table: MetadataTable | None = None,
        stated: set[str] | None = None,
    ) -> NDArray[np.bool_]:
        """Return a mask of the records for which the expression is true, bool[R].

        Args:
            table: table of --metadata.
            stated: set; the columns for which a record has a value are added to it.
        """
        import polars as pl

        columns = _columns(block, self.names)
        if table is not None and self.metadata:
            rows = _metadata_rows(block, table)
            columns |= {name: pl.Series(table.take(name, rows)) for name in self.metadata}
        frame = pl.DataFrame(columns, height=len(block))
        if stated is not None:
            stated.update(name for name in {*columns} - stated if frame[name].count())
        kept: NDArray[np.bool_] = frame.select(
            self.expression.fill_null(value=False).alias("kept")
        )["kept"].to_numpy()
        return np.broadcast_to(kept, (len(block),))


def check_where(text: str, columns: Columns, *, final: bool = True) -> None:
    """Check an expression before the table of --metadata is read.

    Args:
        columns: columns of --metadata, with the types that are known so far.
        final: False if later rows of the table may still change the type of a column to string.
    Raises:
        OptionError: see `where`.
    """
    texts: list[Columns] = [
        tuple((other, "string" if other == name else kind) for other, kind in columns)
        for name, _ in columns
    ]
    try:
        where(text, columns)
    except OptionError:
        if final or not any(_is_accepted(text, other) for other in texts):
            raise


def _is_accepted(text: str, columns: Columns) -> bool:
    try:
        where(text, columns)
    except OptionError:
        return False
    return True


@lru_cache(maxsize=4)
def where(text: str, metadata: Columns = ()) -> Where:
    """Read and check an expression.

    Args:
        metadata: columns of --metadata.
    Raises:
        OptionError: the expression is wrong, or polars is not installed. The message names the
            remedy.
    """
    try:
        import polars as pl
        from polars.exceptions import PolarsError
    except ImportError as error:
        raise OptionError(f"--where needs polars: {install_command('report')}") from error
    refuse_other_operators(text)
    for name in _CALL.findall(without_literals(text)):
        if name.lower() not in (*_FUNCTIONS, *_KEYWORDS):
            raise OptionError(
                f"--where uses the function {name}, but may only use functions of a single record: "
                f"{', '.join(_FUNCTIONS)}"
            )
    columns = (*COLUMNS, *(name for name, _ in metadata))
    try:
        expression, again = pl.sql_expr(text), pl.sql_expr(text)
    except PolarsError as error:
        raise OptionError(
            f"--where {text!r} is not an SQL expression: {_line(error)}; "
            f"{blanks_hint(text, columns)}"
        ) from error
    if not expression.meta.eq(again):
        raise OptionError(
            f"--where {text!r} depends on the time, so a build would not be repeatable"
        )
    names = tuple(sorted(set(expression.meta.root_names())))
    if not names:
        raise OptionError(f"--where {text!r} names no column. Columns: {', '.join(columns)}")
    for name in names:
        if name not in columns:
            close = difflib.get_close_matches(name, columns, n=1)
            meant = f" (do you mean {close[0]}?)" if close else ""
            raise OptionError(
                f"--where names {name!r}{meant}, which is not a column; "
                f"{blanks_hint(text, columns)}. Columns: {', '.join(columns)}"
            )
    own = tuple(name for name in names if name in COLUMNS)
    added = [(name, kind) for name, kind in metadata if name in names]
    one = block_of_texts(["A"], ["A"], 0, ESM2, descriptions=["A"])
    frame = pl.DataFrame(_columns(one, own) | _one_null(added), height=1)
    try:
        tried = frame.select(expression.alias("kept"))
    except PolarsError as error:
        raise OptionError(
            f"--where {text!r} cannot be evaluated: {_line(error)}; "
            f"{regex_hint(str(error)) or types_hint(frame)}"
        ) from error
    if tried["kept"].dtype not in (pl.Boolean, pl.Null):
        raise OptionError(
            f"--where {text!r} is neither true nor false: compare it with a value, as in "
            "'length >= 50'"
        )
    return Where(expression, own, tuple(name for name, _ in added))


def _one_null(columns: Sequence[tuple[str, ColumnType]]) -> dict[str, Any]:
    """Return one null for each column of --metadata, in the type of the column."""
    import polars as pl

    kinds = {"bool": pl.Boolean, "int": pl.Int64, "float": pl.Float64, "string": pl.String}
    return {name: pl.Series([None], dtype=kinds[kind]) for name, kind in columns}


def _metadata_rows(block: RecordBlock, table: MetadataTable) -> NDArray[np.int64]:
    """Return the row of --metadata that belongs to each record, int64[R]; -1 for none."""
    ids = text_array(block.ids, block.id_edges)
    return table.find(ids, HEADER_ARRAYS["accession"](_headers(block)))


def _headers(block: RecordBlock) -> HeaderColumns:
    return parse_headers(block.ids, block.id_edges, block.descriptions, block.description_edges)


def _line(error: Exception) -> str:
    """Return the first line of an error's message. For a regular expression, add the cause, which
    is in a later line."""
    first, *more = str(error).splitlines()
    causes = [line.removeprefix("error: ") for line in more if line.startswith("error: ")]
    return " ".join([first, *causes])


def _columns(block: RecordBlock, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the columns that an expression uses, as polars series."""
    import polars as pl

    columns: dict[str, Any] = {}
    if not HEADER_ARRAYS.keys().isdisjoint(names):
        headers = _headers(block)
    for name in names:
        if name in HEADER_ARRAYS:
            column = pl.Series(HEADER_ARRAYS[name](headers))
            columns[name] = column.cast(pl.String) if name == "database" else column
        elif name in _COMPUTED:
            columns[name] = pl.Series(_COMPUTED[name](block))
        elif name == "id":
            columns[name] = pl.Series(text_array(block.ids, block.id_edges))
        else:
            columns[name] = pl.Series(text_array(block.descriptions, block.description_edges))
    return columns


def _fraction(block: RecordBlock, count: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return counts relative to lengths; 0 for a record without residues."""
    return count / np.maximum(np.diff(block.ends, prepend=0), 1)


def _is_ambiguous(tokens: NDArray[np.uint8]) -> NDArray[np.bool_]:
    table = np.zeros(256, dtype=np.bool_)
    table[[ESM2.letters[letter] for letter in AMBIGUOUS]] = True
    return table[tokens]


def _count(
    block: RecordBlock, mask: Callable[[NDArray[np.uint8]], NDArray[np.bool_]]
) -> NDArray[np.int64]:
    """Return the number of each record's tokens for which `mask` is true, int64[R]."""
    seen = np.concatenate(([0], np.cumsum(mask(block.tokens), dtype=np.int64)))
    return np.diff(seen[block.ends], prepend=0)
