"""Compare a dataset with other files: `thdpack stats DATASET --against FILE`."""
