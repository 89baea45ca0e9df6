"""Verification: check files against the manifest, and buckets against the format's rules.

A build verifies its files before the commit. `thdpack verify` verifies an existing dataset. Start
reading at `check_shards.py`. `compare_records.py` has the steps of `verify --deep`.
"""
