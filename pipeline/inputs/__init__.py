"""Inputs: find files, detect their format and compression, and read their records as token ids.

Formats are FASTA, Parquet, Arrow, CSV, TSV, and the Swiss-Prot, GenBank and EMBL formats that
Biopython reads. Inputs are on disk or at any fsspec URL. `find.py` finds inputs,
`formats/registry.py` lists the formats, and `residues.py` has the rules for letters.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.inputs.decompress import decompressed
    from pipeline.inputs.fasta import FastaParser
    from pipeline.inputs.find import find_sources
    from pipeline.inputs.record_block import RecordBlock
    from pipeline.inputs.source import Source
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        decompress=("decompressed",),
        fasta=("FastaParser",),
        find=("find_sources",),
        record_block=("RecordBlock",),
        source=("Source",),
    )

__all__ = [
    "FastaParser",
    "RecordBlock",
    "Source",
    "decompressed",
    "find_sources",
]
