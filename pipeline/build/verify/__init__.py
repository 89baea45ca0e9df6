"""Verification: check files against the manifest, and buckets against the format's rules.

A build does so before its commit; `thdpack verify` does so at any time. Start at `check_shards.py`.
"""
