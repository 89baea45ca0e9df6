"""Count the rows of records/, with polars, which reads the files in parts.

`facts.py` counts statuses, lengths and duplicates, `header_counts.py` counts databases and taxa,
and `shared_values.py` looks for sequences and clusters that are in two splits.
"""
