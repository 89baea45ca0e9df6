"""Arrays under all stages: Arrow columns from numpy, hashes of sequences, and the compiled kernels.

Nothing here knows of files or tasks.
"""
