"""One input of a build, with its format, compression and fingerprint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Format = Literal["auto", "fasta", "parquet", "arrow", "swiss", "genbank", "embl"]
Compression = Literal["none", "gzip", "zstd", "xz", "bzip2"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One input file.

    url: local path or URL to read it from.
    name: relative to the inputs' common folder; its name in the manifest and in records/.
    bytes: size as stored, compressed or not.
    fingerprint: changes with the file, as far as its store can tell without reading it.
    piece: PIECE_BYTES of the process that planned the build.
    """

    url: str
    name: str
    bytes: int
    fingerprint: str
    format: Format
    compression: Compression
    piece: int

    @property
    def cuttable(self) -> bool:
        """Whether several tasks can share the file: only plain FASTA."""
        return self.format == "fasta" and self.compression == "none"

    @property
    def streamed(self) -> bool:
        """Whether map tasks read all bytes in order, so that they can hash them."""
        return self.format not in ("parquet", "arrow")
