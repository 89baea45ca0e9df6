"""Headers of FASTA records: accession, name, taxon, organism, gene and more, as columns.

Start reading at `columns.py`. `header_kernel.pyx` has the rules of each family of headers (the
format of one database, such as UniProt). A packed header is the values of a header in few bytes.
`packed_header.pxd` describes these bytes.
"""

from pipeline.inputs.headers.columns import (
    HeaderColumns,
    Text,
    pack_headers,
    parse_headers,
    unpack_headers,
)

__all__ = ["HeaderColumns", "Text", "pack_headers", "parse_headers", "unpack_headers"]
