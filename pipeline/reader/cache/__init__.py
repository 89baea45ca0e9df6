"""The cache of remote shards on a node's local disk.

`shard_cache.py` fetches and verifies shards. `cache_folder.py` bounds their folder and locks its
files.
"""
