"""Run MMseqs2, which compares protein sequences: --exclude mmseqs:FILE and --clusters mmseqs:0.5.

`binary.py` finds the command, and `run.py` runs it. `search_stage` writes its inputs.
"""
