"""`thdpack gc`: remove the files that no kept generation of a dataset names.

Each build, append or compaction leaves a new state of the dataset, called a generation. Start
reading at `collect_garbage.py`.
"""
