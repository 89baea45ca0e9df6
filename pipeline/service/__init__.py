"""`thdpack watch`: a service that appends the files of an inbox to a dataset.

Start reading at `watch.py`, which has the loop. A batch is the files that one append adds. Each
build, append or compaction leaves a new state of the dataset, called a generation. A file stays in
the inbox until a generation has it, so the inbox and the dataset's manifest show which files are
still to be taken. The journal makes restarts cheap, and records what happened.
docs/decisions/0020-watch.md has the reasons.
"""
