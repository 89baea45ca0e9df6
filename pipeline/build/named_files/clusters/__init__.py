"""Tables of clusters (`--clusters`, `--sample-clusters`).

`read_clusters.py` converts a table into a work file, in which `cluster_table.py` looks up members.
`joined_keys.py` joins clusters that share a member.
"""
