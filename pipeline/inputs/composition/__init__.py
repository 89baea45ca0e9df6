"""Recognise nucleotides and alignments, which parse as protein FASTA but make useless datasets.

`first_letters.py` judges the beginning of a FASTA file while a build is planned. `block_tokens.py`
judges samples of the records that map tasks read, in any format. `verdict.py` has the rules.
"""
