"""The place where a dataset is built: its folder, its work folder, and the rule by which one of two builds wins.

Start at `destination.py`.
"""
