"""The search stage, between map and reduce: MMseqs2 reads the records that the map stage kept.

`kept_records.py` writes these records as FASTA, and `search_exclusions.py` searches them for
`--exclude mmseqs:FILE`. Builds without `mmseqs:` in an option skip the stage.
"""
