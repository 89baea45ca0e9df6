"""FASTA text as blocks of tokenized records.

`parser.py` is the entry. `chunks.py` cuts a stream into whole records, `headers.py` reads ids and
comments.
"""

from pipeline.inputs.fasta.line_numbers import FastaSyntaxError, line_of
from pipeline.inputs.fasta.parser import FastaParser

__all__ = ["FastaParser", "FastaSyntaxError", "line_of"]
