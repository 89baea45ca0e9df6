"""The search stage, between map and reduce: MMseqs2 reads the records that the map stage kept.

`kept_records.py` writes these records as FASTA. Builds without `mmseqs:` in an option skip the
stage.
"""
