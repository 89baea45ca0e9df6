"""Verification: every file of a dataset against its manifest, every bucket against the format's rules.

A build verifies before its commit; `thdpack verify` does it again at any time.
"""
