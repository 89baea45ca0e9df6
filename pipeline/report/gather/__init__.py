"""What a report says, counted from a manifest and its records/, or from raw sequences.

Start at `dataset.py` and `fasta.py`.
"""
