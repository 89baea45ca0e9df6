"""Spill files: a map task's records, sorted by partition. Each batch of records has a hash.

Search, link, draw and reduce tasks read a spill in parts of bounded size. `spill_files.py`
describes the format.
"""
