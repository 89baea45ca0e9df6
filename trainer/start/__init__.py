"""The start of a run: check its options and files, and choose what the user left open: number
of steps, division of the model among GPUs. `starting_point.py` is the entry.
"""
