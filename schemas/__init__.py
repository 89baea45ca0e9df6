"""Definitions that all packages share: vocabulary, buckets, shard and records schemas, manifest,
errors.

No I/O and no torch. Start at `manifest.py`.
"""

__version__ = "0.1.0"
