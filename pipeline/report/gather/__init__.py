"""Counting: from a manifest and records/, or from raw sequences, to a `Report`.

Start at `dataset.py` and `fasta.py`.
"""
