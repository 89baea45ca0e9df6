"""Parse FASTA text into blocks of tokenized records.

Start reading at `parser.py`. `chunks.py` cuts a stream into whole records, and `headers.py` reads
ids and comments.
"""

from pipeline.inputs.fasta.line_numbers import FastaSyntaxError, line_of
from pipeline.inputs.fasta.parser import FastaParser

__all__ = ["FastaParser", "FastaSyntaxError", "line_of"]
