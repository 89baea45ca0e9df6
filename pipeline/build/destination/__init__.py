"""Where a dataset is built: its folder, the folder of work in progress, and the lock or conditional write that lets one writer win.

Start at `destination.py`.
"""
