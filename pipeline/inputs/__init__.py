"""Inputs: which files were named, in which format and compression, and their records as token ids.

Reads FASTA, Parquet, Arrow and what Biopython reads, from disk or any fsspec URL. Start at `formats.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.inputs.decompress import decompressed
    from pipeline.inputs.fasta import FastaParser
    from pipeline.inputs.find import find_sources
    from pipeline.inputs.formats import read_fasta, read_seqio, read_table
    from pipeline.inputs.residues import RecordBlock
    from pipeline.inputs.source import Source
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        decompress=("decompressed",),
        fasta=("FastaParser",),
        find=("find_sources",),
        formats=(
            "read_fasta",
            "read_seqio",
            "read_table",
        ),
        residues=("RecordBlock",),
        source=("Source",),
    )

__all__ = [
    "FastaParser",
    "RecordBlock",
    "Source",
    "decompressed",
    "find_sources",
    "read_fasta",
    "read_seqio",
    "read_table",
]
