"""Checkpoints: written atomically with hashes, checked before they are loaded, one run at a time in a folder.

Start at `checkpoint.py`.
"""
