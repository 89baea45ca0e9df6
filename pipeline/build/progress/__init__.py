"""Progress of a build while it runs, and the times of its tasks afterwards.

`reporter.py` prints the progress, and `timeline.py` writes the file of --timeline.
"""
