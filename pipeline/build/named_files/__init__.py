"""Files that the options --exclude, --clusters, --sample-clusters and --metadata name.

Start reading at `named_file.py`. `prepare.py` converts each file once, before the map stage, into a
work file (an intermediate file of the build) in which tasks look up values quickly.
"""
