"""An input of a build, with its format, compression and fingerprint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Compression = Literal["none", "gzip", "zstd", "xz", "bzip2"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One input file.

    url: local path or URL to read it from.
    name: name in the manifest and in records/, relative to the inputs' common folder.
    bytes: size of the stored file in bytes; the compressed size if it is compressed.
    format: a key of FORMATS.
    fingerprint: text that changes when the file changes. It is made without reading the file.
    piece: value of PIECE_BYTES in the process that planned the build.
    """

    url: str
    name: str
    bytes: int
    fingerprint: str
    format: str
    compression: Compression
    piece: int


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRange:
    """Bytes `begin` to `end` of a source; all bytes if its format cannot be cut.

    sequence_column, id_column: names of a table's columns.
    """

    source: Source
    begin: int
    end: int
    sequence_column: str
    id_column: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """Inputs other than unaligned proteins that the user wants to read."""

    nucleotides: bool = False
    alignment: bool = False

    @property
    def everything(self) -> bool:
        return self.nucleotides and self.alignment


ANYTHING: Final = Allowed(nucleotides=True, alignment=True)
NOTHING_ELSE: Final = Allowed()
