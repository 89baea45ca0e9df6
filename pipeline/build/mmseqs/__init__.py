"""Run MMseqs2, which compares protein sequences: --exclude mmseqs:FILE and --clusters mmseqs:0.5.

`binary.py` finds the command, `run.py` runs it, and `kept_records.py` writes the records of a build
as FASTA.
"""
