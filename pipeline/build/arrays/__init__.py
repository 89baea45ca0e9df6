"""Array functions that all stages use: Arrow arrays, hashes of sequences, and compiled kernels.

This package does not use files or tasks.
"""
