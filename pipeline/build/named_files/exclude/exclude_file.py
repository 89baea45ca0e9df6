"""Detect the kind of a file of --exclude, and convert the file into entries.

The first line that is neither blank nor a comment determines the kind:

- a line that begins with `>`: a FASTA file, the only kind that `mmseqs:FILE` accepts
- a line with a tab: a result table
- a line with a comma or semicolon: probably CSV, which is refused
- any other line: a list of ids
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from itertools import islice
from textwrap import shorten
from typing import BinaryIO, Final

from pipeline.build.exclusion.entries import Entries, ListedNames, write_entries
from pipeline.build.named_files.exclude.fasta_entries import fasta_entries
from pipeline.build.named_files.exclude.id_list import listed_names
from pipeline.build.named_files.exclude.result_table import result_names
from pipeline.build.named_files.named_file import MMSEQS, NamedFile
from pipeline.build.task_results import PreparedFile
from pipeline.inputs.decompress import detect
from pipeline.inputs.error_location import plain_text
from pipeline.inputs.find import PIECE_BYTES, unchanged
from pipeline.inputs.source import Source
from pipeline.storage.folder import Folder
from pipeline.storage.open_input import open_input
from schemas.errors import InputError

_LOOK: Final = 1 << 16
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1b\x7f]")
_MOST_LINES: Final = 10_000
"""Maximum number of comments and blank lines before the line that determines the kind."""
_KINDS: Final = "FASTA, a list of ids (one on each line), or a result table of MMseqs2 or BLAST"
_SHOWN: Final = 40
"""Maximum number of characters of a line that an error quotes."""


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
        is_id_list=isinstance(entries, ListedNames),
    )


def _entries(file: NamedFile, source: Source) -> tuple[Entries, int]:
    """Return the entries of a file, and their number.

    Raises:
        InputError: the file cannot be read, or is of no known kind.
    """
    with plain_text(source) as stream:
        number, line = _first_line(stream)
    if _BINARY.search(line):
        raise InputError(f"binary data, expected {_KINDS}", source=source.url)
    if line.startswith(b">"):
        return fasta_entries(source, file.allowed, searched=not file.mmseqs)
    if line and file.mmseqs:
        raise InputError(
            f"not FASTA, the only kind of file that --exclude {MMSEQS}FILE reads; if this file is "
            f"a list of ids or a result table, omit {MMSEQS}",
            source=source.url,
            line=number,
        )
    if b"\t" in line:
        return result_names(source, file.min_identity, file.min_coverage)
    if b"," in line or b";" in line:
        begins = shorten(line.decode("utf-8", "replace"), _SHOWN, placeholder="…")
        raise InputError(
            f"{begins!r} looks like a line of CSV, expected {_KINDS}",
            source=source.url,
            line=number,
        )
    return listed_names(source)


def _first_line(stream: BinaryIO) -> tuple[int, bytes]:
    """Return the number and text of the first line that is neither blank nor a comment.

    If there is no such line, return the number 1 and an empty text.
    """
    lines = islice(iter(lambda: stream.readline(_LOOK), b""), _MOST_LINES)
    for number, line in enumerate(lines, start=1):
        text = (line.removeprefix(BOM_UTF8) if number == 1 else line).strip(b"\r\n ")
        if text and not text.startswith((b"#", b";")):
            return number, text
    return 1, b""
