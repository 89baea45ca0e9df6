"""The map stage: read a range of an input, tokenize it, and sort its records into partitions.

Start at `partition_records.py`.
"""
