"""Progress of a build while it runs, and the times of its tasks afterwards.

`reporter.py` prints the progress, `progress_file.py` writes it to a file for other processes, and
`timeline.py` writes the file of --timeline.
"""
