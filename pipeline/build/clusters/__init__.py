"""Files of the link stage (`--clusters`): the cluster of each record, and joined clusters.

`link_stage` writes these files, and the reduce stage reads them.
"""
