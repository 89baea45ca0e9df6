"""Files that options name: --exclude, --clusters and --metadata.

Start reading at `named_file.py`. `prepare.py` converts each file once, before the map stage, into a
work file that tasks look up quickly.
"""
