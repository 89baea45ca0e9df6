"""The hash index of a dataset: finds the kept record that has a given sequence.

`thdpack append` uses the index to recognise duplicates of earlier records. The index is in the
folder index/ of the dataset. It is not part of the dataset: it is derived from records/, and is
written again if it is missing or damaged. Start reading at `index_runs.py`.
"""
