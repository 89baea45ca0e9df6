"""Files that the link stage and the draw stage write, and the reduce stage reads.

- The link stage (`--clusters`, `--sample-clusters`) writes the cluster of each record.
  `joined_clusters.py` joins clusters.
- The draw stage (`--sample-clusters`) writes the members of clusters (the kept records in them).
  `member_files.py` computes the interval of each member, and `draw.py` draws.
"""
