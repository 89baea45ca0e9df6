"""Read an input again after an error, to name file and line in the error's message.

In a large archive (a compressed file), this takes as long as unpacking the archive up to that line.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import BinaryIO, Final, cast

from pipeline.inputs.decompress import (
    ArchiveNeedsError,
    NoEndBlockError,
    broken_archive_errors,
    decompressed,
)
from pipeline.inputs.fasta.headers import NEXT_RECORD, comments_as_ascii, header_of
from pipeline.inputs.fasta.line_numbers import FastaSyntaxError, line_of
from pipeline.inputs.file_kinds import HEAD_BYTES, foreign, ids_and_residues_on_one_line
from pipeline.inputs.residues import first_unknown_letter, letter_classes
from pipeline.inputs.source import Source
from pipeline.storage.open_input import input_errors, open_input
from schemas.errors import FastaError, InputError
from schemas.vocabulary import ESM2

_READ: Final = 1 << 20
EMPTY_ARCHIVE: Final = "the file is empty after decompression; write or download it again"
_NOT_GZIP: Final = "Not a gzipped file"
"""igzip's message for a member without gzip's magic number."""


@contextmanager
def plain_text(source: Source) -> Iterator[BinaryIO]:
    """Open a buffered stream of a source's decompressed bytes.

    Raises:
        InputError: the source cannot be read.
    """
    with (
        open_input(source.url) as raw,
        archive_errors(source),
        closing(decompressed(cast(BinaryIO, io.BufferedReader(raw)), source.compression)) as stream,
    ):
        yield stream


@contextmanager
def stdin_named(spool: str | None) -> Iterator[None]:
    """Let errors name standard input, instead of the file to which standard input was saved."""
    try:
        yield
    except InputError as error:
        if spool is None or os.path.abspath(error.source) != os.path.abspath(spool):
            raise
        raise error.changed(source="standard input") from error


@contextmanager
def archive_errors(source: Source) -> Iterator[None]:
    """Turn errors of truncated, damaged or unreadable archives into InputErrors."""
    broken = broken_archive_errors()
    with input_errors(source.url):
        try:
            yield
        except NoEndBlockError as error:
            raise InputError(
                f"truncated gzip archive: {error}; download or copy it again", source=source.url
            ) from error
        except EOFError as error:
            odd = (
                ", or other bytes were appended to the file"
                if source.compression in ("gzip", "bzip2")
                else ""
            )  # igzip and rapidgzip raise the same errors for truncation and for appended bytes
            raise InputError(
                f"truncated {source.compression} archive: the end is missing{odd}; "
                "download or copy it again",
                source=source.url,
            ) from error
        except ArchiveNeedsError as error:
            raise InputError(f"{source.compression} archive: {error}", source=source.url) from error
        except broken as error:
            reason = str(error)
            if _NOT_GZIP in reason:
                reason = (
                    "a complete part is followed by data that is not gzip: the file is damaged "
                    "there, or something was appended"
                )
            in_brackets = f" ({reason})" if reason else ""
            raise InputError(
                f"damaged {source.compression} archive{in_brackets}; download or copy it again",
                source=source.url,
            ) from error


def line_at(source: Source, offset: int) -> int:
    """Return the number of the line that holds byte `offset` of a FASTA source's plain text."""
    with plain_text(source) as stream:
        return line_of(stream, offset)


def fasta_error(source: Source, error: FastaSyntaxError) -> FastaError:
    """Return a parser's error with file and line. If the file is not FASTA, the message says so."""
    with plain_text(source) as stream:
        kind = foreign(stream.read(HEAD_BYTES), packed=source.compression != "none")
    if kind is not None:
        message = f"not FASTA but {kind.description}"
        return FastaError(message, source=source.url, line=1, remedy=kind.remedy)
    return FastaError(error.message, source=source.url, line=line_at(source, error.offset))


def no_residue(source: Source) -> InputError:
    """Return the error for a source without residues. For FASTA, the error names a line."""
    message = "no residue in this file"
    if source.format != "fasta":
        return InputError(f"{message}; give a file with sequences", source=source.url)
    with plain_text(source) as stream:
        head = stream.read(HEAD_BYTES)
    if not head:  # `find` refuses empty files, so this is an archive
        return InputError(EMPTY_ARCHIVE, source=source.url)
    if ids_and_residues_on_one_line(head):
        where = "residues are on the line of the id, after a tab; FASTA has them on the next lines"
        return InputError(f"{message}: {where}", source=source.url, line=1)
    return InputError(
        f"{message}; FASTA has the residues of each record on the lines below its header",
        source=source.url,
        line=line_at(source, sys.maxsize),
    )


def first_unknown(source: Source, offset: int) -> tuple[str, int]:
    """Return the first unknown letter of the FASTA record at `offset`, and that letter's line."""
    line, record = line_at(source, offset), _record_at(source, offset)
    lines = comments_as_ascii(record[len(header_of(record, 0)) :]).decode("utf-8")
    letter, below = first_unknown_letter(lines, letter_classes(ESM2)) or ("?", 0)
    return letter, line + below


def _record_at(source: Source, offset: int) -> bytes:
    """Return the text of the record that starts at `offset`."""
    text = bytearray()
    with plain_text(source) as stream:
        left = offset
        while left and (skipped := stream.read(min(left, _READ))):
            left -= len(skipped)
        while more := stream.read(_READ):
            text += more
            end = NEXT_RECORD.search(text, max(0, len(text) - len(more) - 1))
            if end is not None:
                return bytes(text[: end.start() + 1])
    return bytes(text)
