"""The reduce stage: for each partition, drop excluded records and duplicates, shuffle, pack, and
write shards and records/.

Start reading at `reduce_partition.py`.
"""
