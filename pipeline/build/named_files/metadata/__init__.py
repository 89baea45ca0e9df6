"""Join the table of --metadata to the records.

1. `table_file.py` opens the table and checks the names of its columns.
2. `prepare_table.py` writes the rows, sorted by the hash of their keys, to a work file. The key of
   a row is the accession or id of a record.
3. `lookup.py` finds the row of each record in that file.
"""
