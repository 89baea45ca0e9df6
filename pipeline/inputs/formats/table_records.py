"""Read records of tables: Parquet files, Arrow IPC files and Arrow streams."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

import pyarrow as pa

from pipeline.inputs.formats.column_names import column_named, id_column_in
from pipeline.inputs.formats.other_format import fasta_error_of, is_fasta
from pipeline.inputs.record_block import RecordBlock, block_of_texts, identifier
from pipeline.inputs.residues import residues_of
from pipeline.inputs.source import Source
from pipeline.storage.open_input import open_input
from schemas.errors import InputError
from schemas.vocabulary import Vocabulary

_STREAM_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""End marker of an Arrow stream. Every message begins with the marker's first four bytes, except in
files written before 2019."""
_BLOCK_RECORDS: Final = 1 << 15


def read_table(
    source: Source,
    vocabulary: Vocabulary,
    sequence_column: str,
    id_column: str,
    on_bytes: Callable[[int], None],
) -> Generator[RecordBlock, None, None]:
    """Yield blocks of a Parquet file, an Arrow IPC file or an Arrow stream.

    Hugging Face's `save_to_disk` writes Arrow streams.

    Raises:
        InputError: a column is missing, the sequence column holds no strings, or the file is
            damaged.
    """
    with table_errors(source), open_input(source.url) as raw:
        columns, batches = table_batches(raw, source)
        sequences, ids = _checked_columns(columns, source, sequence_column, id_column)
        number = 0
        for batch in batches([sequences, *([] if ids is None else [ids])]):
            on_bytes(batch.nbytes)
            yield from blocks_of_batch(batch, sequences, ids, number, vocabulary)
            number += batch.num_rows


def check_table_columns(source: Source, sequence_column: str, id_column: str) -> None:
    """Check the schema of a table.

    Raises:
        InputError: a column is missing, the sequence column holds no strings, or the file is
            damaged.
    """
    with table_errors(source), open_input(source.url) as raw:
        _checked_columns(table_batches(raw, source)[0], source, sequence_column, id_column)


@contextmanager
def table_errors(source: Source) -> Iterator[None]:
    """Turn errors of pyarrow, the operating system or a record's text into an InputError."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        if is_fasta(source):
            raise fasta_error_of(source, f"format {source.format}") from error
        said = str(error).rstrip(".")
        raise InputError(
            f"not a readable {source.format} file: {said}; write, download or copy it again",
            source=source.url,
        ) from error
    except ValueError as error:
        raise InputError(str(error.args[0]), source=source.url) from error


def table_columns(source: Source) -> list[str]:
    """Return the names of a table's columns.

    Raises:
        InputError: the file cannot be read.
    """
    with open_input(source.url) as raw:
        return list(table_batches(raw, source)[0].names)


def blocks_of_batch(
    batch: pa.RecordBatch,
    sequence_column: str,
    id_column: str | None,
    number: int,
    vocabulary: Vocabulary,
) -> Iterator[RecordBlock]:
    """Yield blocks of a record batch.

    `number` is the position of the batch's first record in the file, counted from 0.

    Raises:
        ValueError: a sequence holds a control character.
    """
    sequences = batch.column(sequence_column).to_pylist()
    names = batch.column(id_column).to_pylist() if id_column is not None else [""] * len(sequences)
    for first in range(0, len(sequences), _BLOCK_RECORDS):
        part = slice(first, first + _BLOCK_RECORDS)
        texts = [residues_of(text or "", comments=False) for text in sequences[part]]
        ids = [identifier(name) for name in names[part]]
        yield block_of_texts(ids, texts, number + first, vocabulary)


def table_batches(
    raw: BinaryIO, source: Source
) -> tuple[pa.Schema, Callable[[list[str]], Iterator[pa.RecordBatch]]]:
    """Return a table file's schema, and a function that yields record batches of given columns.

    Raises:
        InputError: an Arrow stream is truncated.
        pa.ArrowInvalid, OSError: the file is damaged.
    """
    if source.format == "parquet":
        import pyarrow.parquet as pq

        parquet = pq.ParquetFile(raw)
        return parquet.schema_arrow, lambda columns: parquet.iter_batches(
            _BLOCK_RECORDS, columns=columns
        )
    if raw.read(6) == b"ARROW1":
        file = pa.ipc.open_file(raw)
        return file.schema, lambda columns: (
            file.get_batch(i).select(columns) for i in range(file.num_record_batches)
        )
    _refuse_cut_stream(raw, source)
    stream = pa.ipc.open_stream(_rewound(raw))
    return stream.schema, lambda columns: (batch.select(columns) for batch in stream)


def _refuse_cut_stream(raw: BinaryIO, source: Source) -> None:
    """Refuse an Arrow stream without an end marker.

    If a stream was cut between two batches, pyarrow raises no error.

    Raises:
        InputError: the end marker is missing.
    """
    start = _rewound(raw).read(4)
    raw.seek(-min(source.bytes, len(_STREAM_END)), io.SEEK_END)
    if start == _STREAM_END[:4] and raw.read(len(_STREAM_END)) != _STREAM_END:
        raise InputError(
            "truncated Arrow stream: its end marker is missing; "
            "write, download or copy the file again",
            source=source.url,
        )


def _rewound(raw: BinaryIO) -> BinaryIO:
    raw.seek(0)
    return raw


def _checked_columns(
    schema: pa.Schema, source: Source, sequence_column: str, id_column: str
) -> tuple[str, str | None]:
    """Return the names of the columns with residues and ids.

    The name of the id column is None if the user named no id column, and the file has none.

    Raises:
        InputError: a column that the user named is missing, the file has no sequence column, or
            the residues are not text.
    """
    sequences = column_named(sequence_column, schema.names)
    ids = id_column_in(schema.names, id_column)
    present = ", ".join(schema.names)
    for option, name, found in (
        ("--sequence-column", sequence_column, sequences),
        ("--id-column", id_column, ids),
    ):
        if found is None and (option, name) != ("--id-column", "id"):
            raise InputError(
                f"no column {name!r}: the columns are {present}",
                source=source.url,
                remedy=f"choose one with {option}",
            )
    assert sequences is not None
    kind = schema.field(sequences).type
    if not (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    ):
        raise InputError(
            f"column {sequences!r} holds {kind}, expected text",
            source=source.url,
            remedy="choose another column with --sequence-column",
        )
    return sequences, ids
