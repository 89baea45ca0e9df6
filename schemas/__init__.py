"""Definitions that all packages share: vocabulary, buckets, shard and records schemas, manifest,
errors.

The package has no I/O and does not need torch. Start reading at `manifest.py`.
"""

__version__ = "0.1.0"
