"""`thdpack append`: add records to a dataset as a new generation.

Each build, append or compaction leaves a new state of the dataset, called a generation. Start
reading at `append_dataset.py`.
"""
