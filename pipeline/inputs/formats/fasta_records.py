"""Read the records of FASTA sources."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import BinaryIO, cast

from pipeline.inputs.content_hash import hashed_range, is_whole
from pipeline.inputs.decompress import decompressed
from pipeline.inputs.error_location import archive_errors, fasta_error
from pipeline.inputs.fasta import FastaParser, FastaSyntaxError
from pipeline.inputs.record_block import Blocks, empty_block
from pipeline.inputs.source import Source
from schemas.vocabulary import Vocabulary


def read_fasta(
    source: Source, vocabulary: Vocabulary, begin: int, end: int, on_bytes: Callable[[int], None]
) -> Blocks:
    """Yield blocks of a FASTA source's byte range, each with a list of hashes.

    The last block has no records. Its list has the xxh3_128 of each piece of the range (see
    `content_hash`). The lists of other blocks are empty.

    Raises:
        FastaError: the text breaks a rule of the format.
        InputError: the source cannot be read, or is a damaged archive (compressed file).
    """
    whole = is_whole(source, begin, end)
    with (
        hashed_range(source, begin, end, on_bytes) as hashing,
        archive_errors(source),
        closing(decompressed(cast(BinaryIO, hashing), source.compression)) as stream,
    ):
        parser = FastaParser(vocabulary)
        try:
            for block in parser.read(stream, begin=begin, end=None if whole else end):
                yield block, []
        except FastaSyntaxError as error:
            raise fasta_error(source, error) from error
        # `finish` also reads any bytes after the last compressed part of an archive
        yield empty_block(), hashing.finish()
