"""Spill files: a map task's records sorted by partition, with a hash for each piece.

Reduce tasks read them back, a bounded piece at a time. `spill_files.py` describes the format.
"""
