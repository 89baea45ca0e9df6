"""Headers of FASTA records: accession, name, taxon, organism, gene and more, as columns.

Start reading at `columns.py`. `header_kernel.pyx` has the rules of each family of headers.
"""

from pipeline.inputs.headers.columns import HeaderColumns, Text, parse_headers

__all__ = ["HeaderColumns", "Text", "parse_headers"]
