"""Recognise nucleotides and alignments, which parse as protein FASTA but make useless datasets.

`first_letters.py` judges the first text of a FASTA file while a build is planned. `block_tokens.py`
judges places of the blocks that map tasks read, of any format. `verdict.py` has the rules.
"""
