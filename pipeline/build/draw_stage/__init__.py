"""The draw stage (`--sample-clusters`): find the members of clusters, between link and reduce.

Start reading at `draw_partition.py`.
"""
