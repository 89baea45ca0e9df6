"""The link stage (`--clusters`, `--sample-clusters`): find the cluster of each record, before the
reduce stage.

Start reading at `link_partition.py`.
"""
