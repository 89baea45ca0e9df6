"""Checkpoints: written atomically with hashes, and verified before they are loaded. A lock file
prevents two runs from writing into the same folder.

Start reading at `checkpoint.py`.
"""
