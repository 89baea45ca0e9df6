"""One input of a build, as it was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Format = Literal["auto", "fasta", "parquet", "arrow", "swiss", "genbank", "embl"]
Compression = Literal["none", "gzip", "zstd", "xz", "bzip2"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One input file.

    url: local path or URL to read it from.
    name: relative to the inputs' common folder; how the manifest and records/ call it.
    bytes: as stored, compressed or not.
    fingerprint: changes when the file does, as far as its store can tell without reading it.
    piece: PIECE_BYTES, as whoever planned had it.
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
        """Whether several tasks can share it: plain FASTA only."""
        return self.format == "fasta" and self.compression == "none"

    @property
    def streamed(self) -> bool:
        """Whether map tasks read it from first byte to last, so that its hash can be taken on the way."""
        return self.format not in ("parquet", "arrow")
