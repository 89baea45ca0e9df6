"""Input formats. `registry.py` lists the formats. The other modules read files of these formats."""
