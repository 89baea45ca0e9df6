"""What all parts agree on: vocabularies, shard and records schemas, the manifest, errors. No I/O, no torch."""

__version__ = "0.1.0"
