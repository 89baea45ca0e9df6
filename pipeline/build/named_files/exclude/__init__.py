"""Files of --exclude: FASTA files, lists of ids, and result tables of MMseqs2 or BLAST.

Start reading at `exclude_file.py`, which detects the kind of a file.
"""
