"""Verification: check every file of a dataset against its manifest, and every bucket against the format's rules.

A build verifies before its commit, and `thdpack verify` does so at any time. Start at `check_shards.py`.
"""
