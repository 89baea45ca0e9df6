"""The cache of remote shards on a node's local disk.

`shard_cache.py` fetches and verifies shards. `cache_folder.py` limits the size of the folder and
locks its files.
"""
