"""Errors for an input that is not in the format in which it is read."""

from __future__ import annotations

from codecs import BOM_UTF8

from pipeline.inputs.error_location import plain_text
from pipeline.inputs.source import Source
from schemas.errors import InputError


def is_fasta(source: Source) -> bool:
    """Return whether the first letter of a source's plain text is `>`.

    Raises:
        InputError: the source cannot be read.
    """
    with plain_text(source) as stream:
        return stream.read(1 << 12).removeprefix(BOM_UTF8).lstrip().startswith(b">")


def fasta_error_of(source: Source, expected: str) -> InputError:
    """Return the error for FASTA that is read in another format, because of --format or its name.

    Args:
        expected: what the other format has in place of the first line of FASTA.
    """
    return InputError(
        f"a line of FASTA, expected {expected}",
        source=source.url,
        line=1,
        remedy="give --format fasta",
    )
