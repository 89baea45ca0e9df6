"""Run a trained model on packed rows of sequences: `thdpack embed` and `thdpack score`.

1. `load_model.py` loads the model; `open_data.py` opens the dataset, or builds one out of FASTA.
2. `units.py` divides the dataset into units of work. `windows.py` cuts the sequences of a unit into
   windows, and `rows.py` packs the windows into rows.
3. `packed_model.py` runs the model on rows. `run_units.py` runs it on all units, and writes the
   results of each unit to a file, a *part* (`parts.py`).
4. `join/` joins the parts: one row for each input record.

A unit does not depend on the number of ranks, so the results do not either. After an interruption,
units whose part exists are not computed again.
"""
