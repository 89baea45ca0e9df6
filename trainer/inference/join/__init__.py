"""Join the parts of a run: one row for each input record. `assemble.py` is the entry."""
