"""The reduce stage: drop duplicates of a partition, shuffle, pack, and write shards and records/.

Start reading at `reduce_partition.py`.
"""
