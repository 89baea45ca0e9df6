"""Inputs: find the files, detect format and compression, and read their records as token ids.

Formats are FASTA, Parquet, Arrow and those of Biopython, from disk or any fsspec URL. `find.py`
finds inputs, `fasta_records.py` reads FASTA, and `residues.py` has the letter rules.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.inputs.decompress import decompressed
    from pipeline.inputs.fasta import FastaParser
    from pipeline.inputs.fasta_records import read_fasta
    from pipeline.inputs.find import find_sources
    from pipeline.inputs.record_block import RecordBlock
    from pipeline.inputs.seqio_records import read_seqio
    from pipeline.inputs.source import Source
    from pipeline.inputs.table_records import read_table
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        decompress=("decompressed",),
        fasta=("FastaParser",),
        find=("find_sources",),
        fasta_records=("read_fasta",),
        record_block=("RecordBlock",),
        seqio_records=("read_seqio",),
        source=("Source",),
        table_records=("read_table",),
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
