"""Checkpoints: written atomically with hashes, and verified before they are loaded. A lock lets one
run at a time write into a folder.

Start at `checkpoint.py`.
"""
