"""Detect the kind of a file of --exclude, and convert the file into entries.

With `mmseqs:FILE`, the file is a FASTA file. Otherwise, the first line that is neither blank nor a
comment determines the kind:

- a line that begins with `>`: a FASTA file
- a line with a tab: a result table
- any other line: a list of ids
"""

from __future__ import annotations

import re
from itertools import islice
from typing import BinaryIO, Final

from pipeline.build.exclusion.entries import Entries, write_entries
from pipeline.build.named_files.exclude.fasta_entries import fasta_entries
from pipeline.build.named_files.exclude.id_list import listed_names
from pipeline.build.named_files.exclude.result_table import result_names
from pipeline.build.named_files.named_file import NamedFile
from pipeline.build.task_results import PreparedFile
from pipeline.inputs.decompress import detect
from pipeline.inputs.error_location import plain_text
from pipeline.inputs.find import PIECE_BYTES, unchanged
from pipeline.inputs.source import Source
from pipeline.storage.folder import Folder
from pipeline.storage.open_input import open_input
from schemas.errors import InputError

_LOOK: Final = 1 << 16
_BOM: Final = b"\xef\xbb\xbf"
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1b\x7f]")
_MOST_LINES: Final = 10_000
"""Maximum number of comments and blank lines before the line that determines the kind."""


def prepare_exclusions(file: NamedFile, name: str, work: Folder) -> PreparedFile:
    """Write the entries of a file of --exclude as the work file `name`.

    Raises:
        InputError: the file cannot be read, is of no known kind, or has no entry.
        BuildError: the work file cannot be written.
    """
    with open_input(file.url) as raw:
        compression = detect(raw.read(_LOOK))
    source = Source(
        url=file.url,
        name=file.name,
        bytes=file.bytes,
        fingerprint=file.fingerprint.removesuffix(file.mmseqs_suffix),
        format="fasta",
        compression=compression,
        piece=PIECE_BYTES,
    )
    entries, rows = _entries(file, source)
    if not rows:
        raise InputError("no sequence, id or result in this file", source=file.url)
    if not unchanged(source):
        raise InputError(
            "changed while it was read, or since the build was planned; run the same command again",
            source=file.url,
        )
    return PreparedFile(
        option=file.option,
        name=file.name,
        bytes=file.bytes,
        file=write_entries(entries, work, name),
        rows=rows,
        xxh3_128=entries.content_hash(file.mmseqs_suffix),
    )


def _entries(file: NamedFile, source: Source) -> tuple[Entries, int]:
    """Return the entries of a file, and their number.

    Raises:
        InputError: the file cannot be read, or is of no known kind.
    """
    with plain_text(source) as stream:
        line = _first_line(stream)
    if _BINARY.search(line):
        raise InputError(
            "binary data, expected FASTA, a list of ids, or a result table of MMseqs2 or BLAST",
            source=source.url,
        )
    if line.startswith(b">") or file.mmseqs:
        return fasta_entries(source, searched=not file.mmseqs)
    if b"\t" in line:
        return result_names(source, file.min_identity, file.min_coverage)
    return listed_names(source)


def _first_line(stream: BinaryIO) -> bytes:
    """Return the first line that is neither blank nor a comment, without its end."""
    for i, line in enumerate(islice(iter(lambda: stream.readline(_LOOK), b""), _MOST_LINES)):
        text = (line.removeprefix(_BOM) if i == 0 else line).strip(b"\r\n ")
        if text and not text.startswith((b"#", b";")):
            return text
    return b""
