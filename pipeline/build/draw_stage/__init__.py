"""The draw stage (`--sample-clusters`), between link and reduce: find the members of clusters (the
kept records in them).

Start reading at `draw_partition.py`.
"""
