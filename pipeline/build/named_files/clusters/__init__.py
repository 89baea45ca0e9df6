"""Tables of clusters (`--clusters`).

`read_clusters.py` converts a table into a work file, which `cluster_table.py` looks up.
`joined_keys.py` joins clusters that share a member.
"""
