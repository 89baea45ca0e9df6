"""Open the datasets of a run: choose generations, mix datasets, check that the model suits them.

Start reading at `open_readers.py`.
"""
