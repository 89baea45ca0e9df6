"""The place where a dataset is built: its folder, its work folder, and which of two builds wins.

Start at `destination.py`.
"""
