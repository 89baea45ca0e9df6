"""The search stage, between map and reduce: MMseqs2 reads the records that the map stage kept.

`kept_records.py` writes these records as FASTA. `search_exclusions.py` searches them for
`--exclude mmseqs:FILE`, and `cluster_records.py` clusters them for `--clusters mmseqs:0.5`. Builds
without `mmseqs:` in an option skip the stage.
"""
