"""Make a `Report` by counting a manifest and records/, or raw sequences.

Start at `dataset.py` and `fasta.py`.
"""
