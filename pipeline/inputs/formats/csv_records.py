"""Records of CSV and TSV files: a header line, then a line for each record.

pyarrow reads a file in blocks, so that its memory use does not depend on the file's size. A quoted
value may hold line ends. In TSV, quotes have a meaning only if the header line begins with a
quote, because most writers of TSV never quote values.
"""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, BinaryIO, Final, NoReturn, cast

import pyarrow as pa

from pipeline.inputs.content_hash import hashed_range
from pipeline.inputs.decompress import decompressed
from pipeline.inputs.error_location import EMPTY_ARCHIVE, archive_errors, plain_text
from pipeline.inputs.file_kinds import BINARY, CONVERT, TO_UTF8
from pipeline.inputs.formats.column_names import column_named, id_column_in
from pipeline.inputs.formats.other_format import fasta_error_of
from pipeline.inputs.formats.table_records import blocks_of_batch
from pipeline.inputs.record_block import Blocks, empty_block
from pipeline.inputs.source import InputRange, Source
from schemas.errors import InputError
from schemas.text.phrases import plural
from schemas.vocabulary import Vocabulary

_BLOCK: Final = 8 << 20
"""Number of bytes parsed at a time, and the maximum length of a line in bytes."""
_HEADER: Final = 1 << 16
_DATA: Final = re.compile(r"^([A-Z*]{21,}|[a-z*]{21,})$|\w\|\w")
"""Values that are hardly names of columns: long sequences, and ids such as sp|P69905|HBA_HUMAN."""
_EXAMPLE: Final = {"csv": "id,sequence", "tsv": "id and sequence with a tab between them"}
"""For each format, a header line to show in an error."""
_DELIMITER: Final = {"csv": ",", "tsv": "\t"}


def read_csv(part: InputRange, vocabulary: Vocabulary, on_bytes: Callable[[int], None]) -> Blocks:
    """Yield blocks of a CSV or TSV file, each with a list of hashes.

    The last block has no records. Its list has the xxh3_128 of each piece of the file (see
    `content_hash`). The lists of other blocks are empty.

    Raises:
        InputError: a column is missing, or a line does not have the header's number of columns.
    """
    source = part.source
    with (
        hashed_range(source, 0, source.bytes, on_bytes) as hashing,
        archive_errors(source),
        closing(decompressed(cast(BinaryIO, hashing), source.compression)) as stream,
    ):
        head = stream.read(_HEADER).removeprefix(BOM_UTF8)
        names = _names(head, source)
        columns = _columns(names, part)
        number = 0
        try:
            for batch in _batches(head, stream, source, columns):
                for block in blocks_of_batch(batch, *columns, number, vocabulary):
                    yield block, []
                number += batch.num_rows
        except pa.ArrowInvalid as error:
            _raise(source, len(names), str(error), error)
        except ValueError as error:
            raise InputError(str(error.args[0]), source=source.url) from error
        yield empty_block(), hashing.finish()


def csv_columns(source: Source) -> list[str]:
    """Return the names of the columns of a CSV or TSV file.

    Raises:
        InputError: the file cannot be read, or is empty.
    """
    with plain_text(source) as stream:
        return _names(stream.read(_HEADER).removeprefix(BOM_UTF8), source)


def text_batches(source: Source) -> Iterator[pa.RecordBatch]:
    """Yield batches of all columns of a CSV or TSV file, as text. Empty lines are left out.

    Raises:
        InputError: the file cannot be read, or a line does not have the header's number of columns.
    """
    with plain_text(source) as stream:
        head = stream.read(_HEADER).removeprefix(BOM_UTF8)
        names = _names(head, source)
        try:
            yield from _batches(head, stream, source, names)
        except pa.ArrowInvalid as error:
            _raise(source, len(names), str(error), error)


def line_of_row(source: Source, row: int) -> int:
    """Return the number of the line on which a row of a CSV or TSV file ends.

    The file is read again. Rows are counted from 0, without the header line and empty lines.
    """
    with plain_text(source) as stream:
        reader, left = _rows(source, stream), row + 1
        for values in reader:
            if values and not left:
                break
            left -= bool(values)
        line: int = reader.line_num
        return line


def check_csv_columns(part: InputRange) -> None:
    """Check the header line of a CSV or TSV file.

    Raises:
        InputError: the file cannot be read, or a column is missing.
    """
    _columns(csv_columns(part.source), part)


def _names(head: bytes, source: Source) -> list[str]:
    """Return the names in the header line.

    Raises:
        InputError: the file is empty.
    """
    if not head and source.compression != "none":
        raise InputError(EMPTY_ARCHIVE, source=source.url)
    if BINARY.search(head.partition(b"\n")[0]):
        raise InputError(f"not text, but binary data: {CONVERT}", source=source.url, line=1)
    lines = io.StringIO(head.decode("utf-8", "replace"), newline="")
    names = next(csv.reader(lines, **_dialect(head, source)), [])
    if not names:
        example = _EXAMPLE[source.format]
        message = f"an empty line, expected the names of columns, such as {example}"
        raise InputError(message, source=source.url, line=1)
    return names


def _columns(names: list[str], part: InputRange) -> tuple[str, str | None]:
    """Return the names of the columns with residues and ids.

    The name of the id column is None if the user named no id column, and the file has none.

    Raises:
        InputError: a column that the user named is missing, or the file has no sequence column.
    """
    sequences = column_named(part.sequence_column, names)
    if sequences is None and names[0].startswith(">"):
        raise fasta_error_of(part.source, "the names of columns")
    ids = id_column_in(names, part.id_column)
    present = ", ".join(names[:20])
    for option, name, found in (
        ("--sequence-column", part.sequence_column, sequences),
        ("--id-column", part.id_column, ids),
    ):
        if found is None and (option, name) != ("--id-column", "id"):
            other = next((mark for mark in ";|\t," if len(names) == 1 and mark in names[0]), None)
            only, which = ("only ", "it") if len(names) == 1 else ("", "one of these columns")
            message = f"no column {name!r} in the header line, which has {only}{present}"
            is_data = other is None and any(map(_DATA.search, names))
            if is_data:
                message = (
                    f"no column {name!r}: the first line seems to be data, and not the names of "
                    f"columns; add a header line, such as {_EXAMPLE[part.source.format]}"
                )
            if other is not None:
                message += f"; its columns are separated by {other!r}: save it with commas or tabs"
            raise InputError(
                message,
                source=part.source.url,
                line=1,
                remedy="" if other or is_data else f"choose {which} with {option}",
            )
    assert sequences is not None
    return sequences, ids


def _dialect(head: bytes, source: Source) -> dict[str, Any]:
    """Return options of the csv module for a file that begins with `head`."""
    quoted = source.format == "csv" or head.startswith(b'"')
    return {
        "delimiter": _DELIMITER[source.format],
        "quoting": csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    }


def _batches(
    head: bytes, stream: BinaryIO, source: Source, columns: Sequence[str | None]
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the given columns, as text.

    Raises:
        InputError: a quote is not closed. pyarrow takes all lines behind it for one value.
    """
    from pyarrow import csv as arrow_csv

    dialect, joined = _dialect(head, source), _Joined(head, stream)
    chosen = [column for column in columns if column is not None]
    yield from arrow_csv.open_csv(
        pa.PythonFile(joined, mode="r"),
        read_options=arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK),
        parse_options=arrow_csv.ParseOptions(
            delimiter=dialect["delimiter"],
            quote_char=False if dialect["quoting"] == csv.QUOTE_NONE else '"',
            newlines_in_values=dialect["quoting"] != csv.QUOTE_NONE,
        ),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=chosen,
            column_types={column: pa.string() for column in chosen},
            strings_can_be_null=False,
        ),
    )
    if joined.quotes % 2 and dialect["quoting"] != csv.QUOTE_NONE:
        _refuse_open_quote(source)


class _Joined(io.RawIOBase):
    """A stream of the bytes `head`, and then of the bytes of `stream`. It counts quotes."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head, self._stream, self.quotes = head, stream, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found, self._head = self._head[:size], self._head[size:]
        found = found or self._stream.read(size)
        self.quotes += found.count(b'"')
        return found


def _refuse_open_quote(source: Source) -> None:
    """Raise an error if a quote of a file is not closed. Read the file again to find the line."""
    with plain_text(source) as stream:
        reader, line = _rows(source, stream, strict=True), 1
        try:
            for _ in reader:
                line = reader.line_num + 1
        except csv.Error as error:
            raise InputError(
                'a value begins with a quote (") and does not end with one',
                source=source.url,
                line=line,
                remedy="remove this quote, or close it",
            ) from error


def _raise(source: Source, columns: int, message: str, error: Exception) -> NoReturn:
    """Raise an error about a line that pyarrow refused. Read the file again to find the line.

    Raises:
        InputError: always.
    """
    if "straddl" in message:
        message = f"a line of more than {_BLOCK >> 20} MiB: is this {source.format.upper()}?"
        raise InputError(message, source=source.url) from error
    with plain_text(source) as stream:
        reader = _rows(source, stream)
        for row in reader:
            problem = _problem(row, columns, source.format)
            if problem:
                line = reader.line_num
                raise InputError(problem, source=source.url, line=line) from error
    raise InputError(
        f"pyarrow cannot read this {source.format.upper()}: {message}", source=source.url
    ) from error


def _rows(source: Source, stream: BinaryIO, *, strict: bool = False) -> Any:
    """Return a csv.reader of a file. Unlike pyarrow, it counts lines."""
    head = stream.peek(1) if hasattr(stream, "peek") else b""
    lines = io.TextIOWrapper(
        cast(Any, stream), encoding="utf-8", errors="surrogateescape", newline=""
    )
    csv.field_size_limit(_BLOCK)  # pyarrow accepts values of this size, too
    return csv.reader(lines, **_dialect(head.removeprefix(BOM_UTF8), source), strict=strict)


def _problem(row: list[str], columns: int, format: str) -> str:
    """Return the reason why a row is refused, or an empty text."""
    if row and len(row) != columns:
        found = f"{plural(len(row), 'column')}, expected {columns} as in the header line"
        if len(row) < columns:
            return f"{found}: complete this line or remove it"
        if format == "csv":
            return f"{found}: put a value that holds a comma in double quotes"
        return f"{found}: remove the tabs that do not separate columns"
    try:
        "".join(row).encode()
    except UnicodeEncodeError:
        return f"not UTF-8: save the file in UTF-8, {TO_UTF8}"
    return ""
