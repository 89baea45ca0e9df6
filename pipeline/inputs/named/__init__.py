"""Turn the arguments of the command line into input files.

`expand.py` expands folders, globs and lists, `ignore.py` leaves files out (--ignore), and
`datasets.py` finds datasets of thdpack, which are not inputs.
"""
