"""Spill files: a map task's records sorted by partition, with a hash for each frame of records.

Reduce tasks read a spill in parts of bounded size. `spill_files.py` describes the format.
"""
