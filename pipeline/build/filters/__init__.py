"""Filters that decide which records a dataset keeps: the expression of `--where`.

Start reading at `where.py`.
"""
