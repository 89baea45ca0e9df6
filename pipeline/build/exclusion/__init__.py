"""Find the records that match an entry of a benchmark's test set (`--exclude`).

A file of `--exclude` is converted once (`named_files`) into entries (`entries.py`). Reduce tasks
compare records with the entries of all files: start reading at `exclusion_index.py`.
"""
