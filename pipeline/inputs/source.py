"""An input of a build, with its format, compression and fingerprint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

Compression = Literal["none", "gzip", "zstd", "xz", "bzip2"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One input file.

    url: local path or URL of the file.
    name: name in the manifest and in records/, relative to the inputs' common folder.
    bytes: size in bytes of the file as stored, before decompression.
    format: a key of FORMATS.
    fingerprint: text that changes when the file changes. It is made without reading the file.
    piece: number of bytes in each hashed piece; PIECE_BYTES for the inputs of a build.
    found: whether the file was found in a folder or by a glob, so that --ignore can leave it out.
    """

    url: str
    name: str
    bytes: int
    fingerprint: str
    format: str
    compression: Compression
    piece: int
    found: bool = field(default=False, compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRange:
    """Bytes `begin` to `end` of a source, or all bytes if the source's format cannot be cut.

    sequence_column, id_column: names of the columns with residues and ids in a table.
    """

    source: Source
    begin: int
    end: int
    sequence_column: str
    id_column: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """Kinds of inputs that the user allows, in addition to unaligned proteins."""

    nucleotides: bool = False
    alignment: bool = False

    @property
    def everything(self) -> bool:
        return self.nucleotides and self.alignment


ANYTHING: Final = Allowed(nucleotides=True, alignment=True)
NOTHING_ELSE: Final = Allowed()
