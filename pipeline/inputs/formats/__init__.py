"""Input formats. `registry.py` lists the formats, and the other modules read them."""
