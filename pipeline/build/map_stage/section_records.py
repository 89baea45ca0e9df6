"""Read the records of a section: a part of an archive's text, in a work file."""

from __future__ import annotations

from typing import BinaryIO, cast

from pipeline.build.tasks import MapTask
from pipeline.inputs.error_location import fasta_error
from pipeline.inputs.fasta import FastaParser, FastaSyntaxError
from pipeline.inputs.record_block import Blocks
from schemas.vocabulary import Vocabulary


def section_blocks(task: MapTask, vocabulary: Vocabulary) -> Blocks:
    """Yield a section's records in blocks, each with an empty list of hashes: hash tasks hash
    archives.

    Raises:
        FastaError: the text breaks a rule of the format.
        FileNotFoundError: the section is gone.
    """
    with open(task.work.where(task.section_file), "rb", buffering=0) as file:
        try:
            for block in FastaParser(vocabulary).read(cast(BinaryIO, file)):
                block.offset[:] += task.begin
                yield block, []
        except FastaSyntaxError as error:
            whole = FastaSyntaxError(error.message, error.offset + task.begin)
            raise fasta_error(task.source, whole) from error
