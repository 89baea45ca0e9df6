"""Input formats. `registry.py` lists the formats, and the other modules read files of them."""
