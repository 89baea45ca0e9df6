"""One input of a build, with its format, compression and fingerprint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Compression = Literal["none", "gzip", "zstd", "xz", "bzip2"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One input file.

    url: local path or URL to read it from.
    name: relative to the inputs' common folder; its name in the manifest and in records/.
    bytes: size as stored, compressed or not.
    format: a key of FORMATS.
    fingerprint: changes with the file, as far as its store can tell without reading it.
    piece: PIECE_BYTES of the process that planned the build.
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
    """Bytes `begin` to `end` of a source, all of it unless its format can be cut.

    sequence_column, id_column: names of a table's columns.
    """

    source: Source
    begin: int
    end: int
    sequence_column: str
    id_column: str
