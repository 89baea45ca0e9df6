"""Make a `Report` from a dataset's manifest and records/, or from raw sequences.

Start at `dataset.py` and `fasta.py`. records/ is the dataset's folder with a row for every input
record.
"""
