"""Every input format as blocks of tokenized records."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import BinaryIO, Final, TextIO, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.inputs.content_hash import HashingReader
from pipeline.inputs.decompress import decompressed
from pipeline.inputs.error_location import archive_errors, fasta_error
from pipeline.inputs.fasta import FastaParser, FastaSyntaxError
from pipeline.inputs.residues import RecordBlock, encode, letter_classes, residues_of
from pipeline.inputs.source import Source
from pipeline.storage.open_input import open_input
from schemas.errors import InputError
from schemas.vocabulary import Vocabulary

Blocks = Generator[tuple[RecordBlock, list[str]], None, None]
"""Close it, so that a stream that was not read to its end ends its threads and closes its file."""

_STREAM_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""The first four begin each message; streams of before 2019 are without."""
_BLOCK_RECORDS: Final = 1 << 15
_BLOCK_RESIDUES: Final = 16 << 20


def read_fasta(
    source: Source, vocabulary: Vocabulary, begin: int, end: int, on_bytes: Callable[[int], None]
) -> Blocks:
    """Blocks of a FASTA source's byte range; with the last, which is empty, the xxh3_128 of each piece of the range.

    Raises:
        FastaError: a rule of the format is broken; InputError: unreadable, or a damaged archive.
    """
    whole = _is_whole(source, begin, end)
    with (
        _hashed(source, begin, end, on_bytes) as hashing,
        archive_errors(source),
        closing(decompressed(cast(BinaryIO, hashing), source.compression)) as stream,
    ):
        parser = FastaParser(vocabulary)
        try:
            for block in parser.read(stream, begin=begin, end=None if whole else end):
                yield block, []
        except FastaSyntaxError as error:
            raise fasta_error(source, error) from error
        yield _no_records(), hashing.finish()  # with what follows the last member of an archive


def hash_range(source: Source, begin: int, end: int, on_bytes: Callable[[int], None]) -> list[str]:
    """The xxh3_128 of each piece of a source's byte range.

    Raises:
        InputError: it cannot be read.
    """
    with _hashed(source, begin, end, on_bytes) as hashing:
        return hashing.finish()


@contextmanager
def _hashed(
    source: Source, begin: int, end: int, on_bytes: Callable[[int], None]
) -> Iterator[HashingReader]:
    """A source from byte `begin` on, hashed up to `end`."""
    whole = _is_whole(source, begin, end)
    with open_input(source.url, at=begin, until=None if whole else end) as raw:
        yield HashingReader(
            cast(BinaryIO, _Counting(raw, on_bytes)),
            piece=source.piece,
            size=None if whole else end - begin,
        )


def _is_whole(source: Source, begin: int, end: int) -> bool:
    """Whether a range is all of a source, which is read to its end: the size of what a web server has may not be known."""
    return begin == 0 and end == source.bytes


class _Counting:
    """Tells how much of a file was read; progress goes by bytes as stored."""

    def __init__(self, file: BinaryIO, on_bytes: Callable[[int], None]) -> None:
        self._file = file
        self._on_bytes = on_bytes
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._on_bytes(len(data))
        return data

    def readinto(self, buffer: memoryview) -> int:
        count = cast(int, self._file.readinto(buffer))  # type: ignore[attr-defined]
        self._on_bytes(count)
        return count

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def read_table(
    source: Source,
    vocabulary: Vocabulary,
    sequence_column: str,
    id_column: str,
    on_bytes: Callable[[int], None],
) -> Generator[RecordBlock, None, None]:
    """Blocks of a Parquet file, an Arrow IPC file or an Arrow stream (what Hugging Face `save_to_disk` writes).

    Raises:
        InputError: a column is missing or holds no text, or the file is damaged.
    """
    try:
        with open_input(source.url) as raw:
            columns, batches = _batches(raw, source)
            ids = _checked_columns(columns, source, sequence_column, id_column)
            number = 0
            for batch in batches([sequence_column, *ids]):
                on_bytes(batch.nbytes)
                sequences = batch.column(sequence_column).to_pylist()
                names = batch.column(ids[0]).to_pylist() if ids else [""] * len(sequences)
                for first in range(0, len(sequences), _BLOCK_RECORDS):
                    part = slice(first, first + _BLOCK_RECORDS)
                    texts = [residues_of(text or "", comments=False) for text in sequences[part]]
                    yield _block(
                        [_identifier(name) for name in names[part]],
                        texts,
                        number + first,
                        vocabulary,
                    )
                number += len(sequences)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(
            f"not a readable {source.format} file: {error}", source=source.url
        ) from error
    except ValueError as error:
        raise InputError(str(error.args[0]), source=source.url) from error


def _batches(
    raw: BinaryIO, source: Source
) -> tuple[pa.Schema, Callable[[list[str]], Iterator[pa.RecordBatch]]]:
    """Schema of a table file, and its record batches, given the columns wanted."""
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
    """Refuse an Arrow stream without its end: cut between two batches, it reads as a shorter one.

    Raises:
        InputError: it has none.
    """
    start = _rewound(raw).read(4)
    raw.seek(-min(source.bytes, len(_STREAM_END)), io.SEEK_END)
    if start == _STREAM_END[:4] and raw.read(len(_STREAM_END)) != _STREAM_END:
        raise InputError(
            "truncated Arrow stream: its end marker is missing; write it anew, or download or copy it again",
            source=source.url,
        )


def _rewound(raw: BinaryIO) -> BinaryIO:
    raw.seek(0)
    return raw


def _checked_columns(
    schema: pa.Schema, source: Source, sequence_column: str, id_column: str
) -> list[str]:
    """The id column as a list of one, or of none where the default is absent."""
    present = ", ".join(schema.names)
    for option, name in (("--sequence-column", sequence_column), ("--id-column", id_column)):
        if name not in schema.names:
            if option == "--id-column" and name == "id":
                return []
            raise InputError(
                f"no column {name!r}; it has {present}; name one with {option}", source=source.url
            )
    kind = schema.field(sequence_column).type
    if not (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    ):
        raise InputError(
            f"column {sequence_column!r} holds {kind}, expected text; name another with --sequence-column",
            source=source.url,
        )
    return [id_column]


def read_seqio(source: Source, vocabulary: Vocabulary, on_bytes: Callable[[int], None]) -> Blocks:
    """Blocks of a format that Biopython's SeqIO reads (swiss, genbank, embl); with the last, which is empty, the xxh3_128 of each piece.

    Raises:
        InputError: Biopython refuses it; the line is the last that it had read.
    """
    from Bio import SeqIO

    with (
        _hashed(source, 0, source.bytes, on_bytes) as hashing,
        archive_errors(source),
        closing(decompressed(cast(BinaryIO, hashing), source.compression)) as stream,
    ):
        lines = _CountedLines(
            io.TextIOWrapper(io.BufferedReader(_Raw(stream)), encoding="utf-8", errors="replace")
        )
        ids: list[str] = []
        texts: list[str] = []
        number = size = 0
        try:
            for record in SeqIO.parse(cast(TextIO, lines), source.format):  # type: ignore[no-untyped-call]
                ids.append(_identifier(record.id))
                texts.append(residues_of(str(record.seq), comments=False))
                size += len(texts[-1])
                if len(ids) == _BLOCK_RECORDS or size > _BLOCK_RESIDUES:
                    yield _block(ids, texts, number, vocabulary), []
                    number, size, ids, texts = number + len(ids), 0, [], []
        except (ValueError, AssertionError, KeyError, IndexError, AttributeError) as error:
            # what SeqIO's parsers raise on text that is not their format
            raise InputError(
                f"not {source.format} that Biopython reads: {error}",
                source=source.url,
                line=lines.line,
            ) from error
        if lines.last.strip() not in ("", "//"):
            raise InputError(
                f"truncated {source.format}: the last record does not end with //; download or copy it again",
                source=source.url,
                line=lines.line,
            )
        yield _block(ids, texts, number, vocabulary), []
        yield _no_records(), hashing.finish()


class _Raw(io.RawIOBase):
    """A stream with `read` and `readinto` only, as what io.BufferedReader wants."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return cast(int, self._stream.readinto(buffer))  # type: ignore[attr-defined]


class _CountedLines:
    """A text handle that knows how many lines were read from it, and the last that was not blank."""

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self.line = 0
        self.last = ""

    def readline(self) -> str:
        line = self._text.readline()
        self.line += bool(line)
        self.last = line if line.strip() else self.last
        return line

    def read(self, size: int = -1) -> str:
        text = self._text.read(size)
        self.line += text.count("\n")
        self.last = text.rstrip().rpartition("\n")[2] or self.last
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    def __next__(self) -> str:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def close(self) -> None:
        self._text.close()


def _identifier(name: object) -> str:
    """An id from a table or Biopython, cut at its first blank like a FASTA header."""
    words = str(name).split(None, 1) if name is not None else []
    return words[0] if words else ""


def _block(ids: list[str], residues: list[str], number: int, vocabulary: Vocabulary) -> RecordBlock:
    """A RecordBlock of texts; `number` is the first one's place in its file."""
    classes = letter_classes(vocabulary)
    encoded = [encode(text, classes, vocabulary.unk) for text in residues]
    names = [name.encode("utf-8", "backslashreplace") for name in ids]
    return RecordBlock(
        tokens=np.concatenate([np.empty(0, dtype=np.uint8), *(tokens for tokens, _ in encoded)]),
        ends=_ends([tokens.size for tokens, _ in encoded]),
        ids=np.frombuffer(b"".join(names), dtype=np.uint8),
        id_ends=_ends([len(name) for name in names]),
        offset=np.arange(number, number + len(residues), dtype=np.int64),
        unknown=np.array([unknown for _, unknown in encoded], dtype=np.int64),
    )


def _ends(sizes: list[int]) -> NDArray[np.int64]:
    return np.cumsum(np.array(sizes, dtype=np.int64), dtype=np.int64)


def _no_records() -> RecordBlock:
    nothing, none = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint8)
    return RecordBlock(
        tokens=none, ends=nothing, ids=none, id_ends=nothing, offset=nothing, unknown=nothing
    )
