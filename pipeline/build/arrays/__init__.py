"""Array functions that all stages use: Arrow columns from numpy arrays, hashes of sequences, and the compiled kernels.

Nothing here knows about files or tasks.
"""
