"""Tables of clusters (`--clusters`, `--sample-clusters`).

Each row of a table names the representative of a cluster and a member: a record that belongs to the
cluster. `read_clusters.py` converts a table into a work file (an intermediate file of the build),
in which `cluster_table.py` looks up members. `joined_keys.py` joins clusters that share a member.
"""
