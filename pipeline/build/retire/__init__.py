"""Retired records: `thdpack append --retire` lists them in retired/, and changes no other file.

`pipeline/build/append/find_retired.py` runs the tasks. Start reading at `retired_files.py`.
"""
