"""Read the first records of inputs, so that a dry run finds the faults that a build would find."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from pipeline.inputs.error_location import no_residue
from pipeline.inputs.formats.registry import FORMATS
from pipeline.inputs.named.ignore import with_ignore
from pipeline.inputs.source import InputRange, Source
from pipeline.storage.urls import is_url
from schemas.errors import InputError
from schemas.vocabulary import ESM2


def check_first_records(sources: Sequence[Source], *, sequence_column: str, id_column: str) -> None:
    """Read the first block of each input on a disk of this machine, as a map task does.

    Inputs at URLs are not read, because each would cost several requests.

    Raises:
        InputError: an input holds no residue, or its first block is damaged or of another format.
    """
    for source in sources:
        if is_url(source.url):
            continue
        part = InputRange(
            source=source,
            begin=0,
            end=source.bytes,
            sequence_column=sequence_column,
            id_column=id_column,
        )
        try:
            with closing(FORMATS[source.format].read(part, ESM2, lambda _: None)) as blocks:
                if not any(block.tokens.size for block, _ in blocks):
                    raise no_residue(source)
        except InputError as error:
            raise with_ignore(error, source.url, found=source.found) from error
