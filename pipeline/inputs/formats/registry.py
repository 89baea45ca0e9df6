"""Registry of input formats: how to recognise, cut and read files of each format.

A format's module is imported at the first read, so that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from pipeline.inputs.record_block import Blocks
    from pipeline.inputs.source import InputRange, Source
    from schemas.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFormat:
    """An input format.

    read: function that yields blocks of records. The last block comes with hashes of the input's
        bytes, except for Parquet and Arrow (see `record_block.Blocks`).
        Raises:
            InputError: the input cannot be read or breaks a rule.
    suffixes: endings of file names in lower case, without endings of compressed files such as .gz.
    first_bytes: a file that begins with these bytes, at most 8, has this format. Arrow streams do
        not begin with such bytes, and are recognised by suffix.
    in_folders: whether files with these suffixes are read if the user names their folder. If not,
        the user must name each file, because a folder of proteins often holds other files of this
        format: a genome, its annotation, metadata.
    can_be_cut: whether several tasks can each read a part of a file, if it is not compressed.
    is_table: whether files are read by columns and have internal compression.
    columns: function that returns the names of a file's columns; None if the format has none.
        Raises:
            InputError: the input cannot be read.
    check_columns: function that checks the columns of a file; None if the format has none.
        Raises:
            InputError: the input cannot be read, or lacks a column that the range names.
    """

    read: Callable[[InputRange, Vocabulary, Callable[[int], None]], Blocks]
    suffixes: tuple[str, ...] = ()
    first_bytes: bytes | None = None
    in_folders: bool = False
    can_be_cut: bool = False
    is_table: bool = False
    columns: Callable[[Source], list[str]] | None = None
    check_columns: Callable[[InputRange], None] | None = None


def _fasta(part: InputRange, vocabulary: Vocabulary, on_bytes: Callable[[int], None]) -> Blocks:
    from pipeline.inputs.formats.fasta_records import read_fasta

    return read_fasta(part.source, vocabulary, part.begin, part.end, on_bytes)


def _table(part: InputRange, vocabulary: Vocabulary, on_bytes: Callable[[int], None]) -> Blocks:
    from pipeline.inputs.formats.table_records import read_table

    columns = part.sequence_column, part.id_column
    return ((block, []) for block in read_table(part.source, vocabulary, *columns, on_bytes))


def _table_columns(source: Source) -> list[str]:
    from pipeline.inputs.formats.table_records import table_columns

    return table_columns(source)


def _check_table(part: InputRange) -> None:
    from pipeline.inputs.formats.table_records import check_table_columns

    check_table_columns(part.source, part.sequence_column, part.id_column)


def _csv(part: InputRange, vocabulary: Vocabulary, on_bytes: Callable[[int], None]) -> Blocks:
    from pipeline.inputs.formats.csv_records import read_csv

    return read_csv(part, vocabulary, on_bytes)


def _csv_columns(source: Source) -> list[str]:
    from pipeline.inputs.formats.csv_records import csv_columns

    return csv_columns(source)


def _check_csv(part: InputRange) -> None:
    from pipeline.inputs.formats.csv_records import check_csv_columns

    check_csv_columns(part)


def _seqio(part: InputRange, vocabulary: Vocabulary, on_bytes: Callable[[int], None]) -> Blocks:
    from pipeline.inputs.formats.seqio_records import read_seqio

    return read_seqio(part.source, vocabulary, on_bytes)


_FASTA_SUFFIXES = (".fasta", ".fa", ".faa", ".fas", ".fsa", ".pep", ".mpfa", ".aa", ".seq")
FORMATS: Final = {
    "fasta": InputFormat(read=_fasta, suffixes=_FASTA_SUFFIXES, in_folders=True, can_be_cut=True),
    "parquet": InputFormat(
        read=_table,
        suffixes=(".parquet", ".pq"),
        first_bytes=b"PAR1",
        in_folders=True,
        is_table=True,
        columns=_table_columns,
        check_columns=_check_table,
    ),
    "arrow": InputFormat(
        read=_table,
        suffixes=(".arrow", ".feather", ".ipc"),
        first_bytes=b"ARROW1",
        in_folders=True,
        is_table=True,
        columns=_table_columns,
        check_columns=_check_table,
    ),
    "csv": InputFormat(
        read=_csv, suffixes=(".csv",), columns=_csv_columns, check_columns=_check_csv
    ),
    "tsv": InputFormat(
        read=_csv, suffixes=(".tsv",), columns=_csv_columns, check_columns=_check_csv
    ),
    "swiss": InputFormat(read=_seqio, suffixes=(".swiss", ".sprot")),
    "genbank": InputFormat(
        read=_seqio, suffixes=(".gb", ".gbk", ".gbff", ".gp", ".gpff", ".genbank")
    ),
    "embl": InputFormat(read=_seqio, suffixes=(".embl",)),
}
"""Formats, by the values of `--format`."""

if TYPE_CHECKING:
    Format = str
else:
    Format = Literal[("auto", *FORMATS)]
"""A key of FORMATS, or `auto`."""


def recognised(first_bytes: bytes, suffix: str) -> str:
    """Return a file's format from its first bytes or its name's suffix; `fasta` if unknown."""
    for name, known in FORMATS.items():
        if known.first_bytes is not None and first_bytes.startswith(known.first_bytes):
            return name
    return next((name for name, known in FORMATS.items() if suffix in known.suffixes), "fasta")
