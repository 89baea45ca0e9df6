"""Input formats: `registry.py` lists them, and each of the other modules reads some of them."""
