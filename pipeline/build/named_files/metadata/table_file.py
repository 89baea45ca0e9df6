"""Open the table of --metadata: its format, its key column, and the names of its other columns."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from pipeline.build.named_files.metadata.column_types import (
    TextTypes,
    key_array,
    table_array,
    type_of,
)
from pipeline.build.named_files.named_file import NamedFile
from pipeline.inputs.decompress import detect
from pipeline.inputs.error_location import plain_text
from pipeline.inputs.file_names import suffix
from pipeline.inputs.find import PIECE_BYTES
from pipeline.inputs.formats.column_names import first_column_named
from pipeline.inputs.formats.csv_records import csv_columns, line_of_row, text_batches
from pipeline.inputs.formats.registry import FORMATS, recognised
from pipeline.inputs.formats.table_records import table_batches, table_columns, table_errors
from pipeline.inputs.source import Source
from pipeline.storage.open_input import open_input
from schemas.errors import InputError
from schemas.records import MOST_METADATA_COLUMNS, ColumnType, records_schema

KEYS: Final = ("accession", "entry", "id")
"""Possible names of the key column, in order of preference."""
_TEXT_FORMATS: Final = ("csv", "tsv")
_LOOK: Final = 1 << 16
_LONGEST_NAME: Final = 255
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MOST_NAMES: Final = 20
"""Maximum number of columns that an error lists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFile:
    """The table of --metadata.

    key: name of the key column
    columns: names of all other columns, sorted
    """

    source: Source
    key: str
    columns: tuple[str, ...]

    @property
    def is_text(self) -> bool:
        return self.source.format in _TEXT_FORMATS

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows: the key as the column `""`, then the other columns.

        Columns of a text table are texts. Columns of any other table have their final types.

        Raises:
            InputError: the table cannot be read, or a column has a type that is refused.
        """
        names = ["", *self.columns]
        if self.is_text:
            for batch in text_batches(self.source):
                chosen = batch.select([self.key, *self.columns])
                yield pa.RecordBatch.from_arrays(chosen.columns, names=names)
            return
        with table_errors(self.source), open_input(self.source.url) as raw:
            schema, batches = table_batches(raw, self.source)
            types = self._types(schema)
            for batch in batches([self.key, *self.columns]):
                arrays = [self._final(batch, name, kind) for name, kind in types.items()]
                yield pa.RecordBatch.from_arrays(
                    [key_array(batch.column(self.key)), *arrays], names=names
                )

    def _final(self, batch: pa.RecordBatch, name: str, kind: ColumnType) -> pa.Array:
        try:
            return table_array(batch.column(name), kind)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"column {name!r}: {error}; convert the column to texts", source=self.source.url
            ) from error

    def types(self) -> tuple[dict[str, ColumnType], bool]:
        """Return the types of the columns, and whether they are final.

        Only the schema or the first rows are read. Later rows of a text table may change a type.

        Raises:
            InputError: the table cannot be read, or a column has a type that is refused.
        """
        if not self.is_text:
            with table_errors(self.source), open_input(self.source.url) as raw:
                return self._types(table_batches(raw, self.source)[0]), True
        found = TextTypes(self.columns)
        batches = self.batches()
        first = next(batches, None)
        if first is not None:
            found.add(first)
        return found.types, next(batches, None) is None

    def _types(self, schema: pa.Schema) -> dict[str, ColumnType]:
        kinds = {name: type_of(schema.field(name).type) for name in self.columns}
        key = schema.field(self.key).type
        if type_of(key) not in ("string", "int"):
            self._refuse(self.key, key)
        for name, kind in kinds.items():
            if kind is None:
                self._refuse(name, schema.field(name).type)
        return {name: kind for name, kind in kinds.items() if kind is not None}

    def _refuse(self, name: str, kind: pa.DataType) -> None:
        raise InputError(
            f"column {name!r} holds {kind}: convert it to texts or numbers, or leave it out",
            source=self.source.url,
        )

    def line(self, row: int) -> int | None:
        """Return the line of a row in a text table; None for other tables. Rows count from 0."""
        return line_of_row(self.source, row) if self.is_text else None


def table_file(file: NamedFile) -> TableFile:
    """Open the table of --metadata, and check the names of its columns.

    Raises:
        InputError: the file cannot be read, has no key column, or a name is refused.
    """
    source = _source(file)
    if source.format in _TEXT_FORMATS:
        names = csv_columns(source)
    else:
        with table_errors(source):
            names = table_columns(source)
    return checked_columns(source, names)


def checked_columns(source: Source, names: Sequence[str]) -> TableFile:
    """Check the names of a table's columns, and return the table.

    Raises:
        InputError: no column is the key, or a name is refused.
    """
    key = first_column_named(KEYS, names)
    if key is None:
        more = ", …" if len(names) > _MOST_NAMES else ""
        raise InputError(
            "no key column (accession, Entry or id), which links each row to a record; "
            f"rename one of the columns: {', '.join(names[:_MOST_NAMES])}{more}",
            source=source.url,
        )
    counts = Counter(names)
    for name in names:
        problem = _problem(name, counts[name], is_key=name == key)
        if problem:
            raise InputError(f"column {name!r} {problem}", source=source.url)
    if len(names) - 1 > MOST_METADATA_COLUMNS:
        raise InputError(
            f"{len(names) - 1:,} columns, expected at most {MOST_METADATA_COLUMNS:,}: leave out "
            "those that you do not need",
            source=source.url,
        )
    return TableFile(
        source=source, key=key, columns=tuple(sorted(name for name in names if name != key))
    )


def _problem(name: str, count: int, *, is_key: bool) -> str:
    """Return the reason why the name of a column is refused, or an empty text."""
    if count > 1:
        return f"occurs {count} times: rename or remove all but one"
    if is_key:
        return ""
    if not name.strip():
        return "has no name: name it or remove it"
    if len(name) > _LONGEST_NAME or _UNPRINTABLE.search(name):
        return f"has control characters or more than {_LONGEST_NAME} characters: rename it"
    if name in records_schema(keep_header=True).names:
        return "is already a column of records/: rename it"
    return ""


def _source(file: NamedFile) -> Source:
    """Return the table as an input, with its format and compression.

    Raises:
        InputError: the file cannot be read, or is FASTA, or a compressed Parquet or Arrow file.
    """
    with open_input(file.url) as raw:
        head = raw.read(_LOOK)
    compression = detect(head)
    source = Source(
        url=file.url,
        name=file.name,
        bytes=file.bytes,
        fingerprint=file.fingerprint,
        format=recognised(head, suffix(file.name)),
        compression=compression,
        piece=PIECE_BYTES,
    )
    if source.format in _TEXT_FORMATS:
        return source
    if FORMATS[source.format].is_table:
        if compression != "none":
            raise InputError(
                f"a {compression} archive of a table; unpack it, because {source.format} files "
                "have internal compression",
                source=file.url,
            )
        return source
    with plain_text(source) as stream:
        header = stream.read(_LOOK).removeprefix(BOM_UTF8).partition(b"\n")[0]
    if header.startswith(b">"):
        raise InputError(
            "this is FASTA, but --metadata expects a table (Parquet, Arrow, CSV or TSV) with a "
            "column of accessions or ids; thdpack reads headers of FASTA in the inputs",
            source=file.url,
        )
    return replace(source, format="tsv" if b"\t" in header else "csv")
