"""Run MMseqs2, a program that compares protein sequences, for `--exclude mmseqs:FILE` and
`--clusters mmseqs:0.5`.

`binary.py` finds the program, and `run.py` runs it. `search_stage/` writes the input files.
"""
