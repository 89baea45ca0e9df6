"""Open the datasets of a run: choose generations, mix datasets, and check that the model can be
trained on them.

Start reading at `open_readers.py`.
"""
