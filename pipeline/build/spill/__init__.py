"""Spill files: the records of a map task sorted by partition, with a hash for each piece.

Reduce tasks read them back a bounded piece at a time.
"""
