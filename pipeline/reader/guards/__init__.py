"""Refuse uses of a reader that would repeat or lose buckets: forked processes and DataLoader."""
