"""Find the records that match an entry of a benchmark's test set (`--exclude`).

The package `named_files` converts each file of `--exclude` into entries (`entries.py`), once per
build. Reduce tasks compare records with the entries of all files.

Start reading at `exclusion_index.py`.
"""
