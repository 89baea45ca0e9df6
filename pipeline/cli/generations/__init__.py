"""Subcommands for datasets that grow: append, compact, gc, generations, watch.

Each build, append or compaction leaves a new state of the dataset, called a generation.
"""
