"""Headers of FASTA records: accession, name, taxon, organism, gene and more, as columns.

Start reading at `columns.py`. `header_kernel.pyx` has the rules of each family of headers, and
`packed_header.pxd` the bytes of a packed header.
"""

from pipeline.inputs.headers.columns import (
    HeaderColumns,
    Text,
    pack_headers,
    parse_headers,
    unpack_headers,
)

__all__ = ["HeaderColumns", "Text", "pack_headers", "parse_headers", "unpack_headers"]
