"""Destination of a build: its folders, and the rules for two builds with the same destination.

Start reading at `destination.py`.
"""
