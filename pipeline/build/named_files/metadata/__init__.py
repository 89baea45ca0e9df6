"""Join the table of --metadata to the records.

1. `table_file.py` opens the table and checks the names of its columns.
2. `prepare_table.py` sorts the table's rows by the hash of their keys, into a work file.
3. `lookup.py` finds the row of each record in that file.
"""
