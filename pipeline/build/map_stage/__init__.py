"""The map stage: read a range of an input, tokenize its records, and sort them into partitions.

Start reading at `partition_records.py`.
"""
