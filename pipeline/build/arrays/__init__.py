"""Array functions that all stages use: Arrow arrays, hashes of sequences, and compiled kernels.

Nothing here knows about files or tasks.
"""
