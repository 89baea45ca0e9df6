"""Generations of a dataset. Each build, append or compaction leaves a new state of the dataset,
called a generation. The manifest of a generation never changes. It contains the digest of the
manifest of the generation before (the parent).

`thdpack preprocess` writes generation 1. Each `thdpack append` adds a generation that has all files
of its parent and new files. `thdpack compact` adds a generation that has only new files. Start
reading at `merge_manifests.py`.
"""
