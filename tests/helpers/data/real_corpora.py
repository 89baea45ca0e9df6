"""Text of the real corpora in ../shared/data.

By default, only the first records are used, because parsing a whole corpus with the slow oracle.py
takes seconds. With the environment variable THDPACK_LONG, all records are used.
"""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

FIRST = 2_000
"""Number of records of a corpus that tests use by default."""


def corpus_text(path: Path) -> bytes:
    """Return the decompressed text of the first FIRST records or, with THDPACK_LONG, of all."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if "THDPACK_LONG" in os.environ:
        return text
    begins = [found.start() for found in re.finditer(rb"^>", text, re.MULTILINE)]
    return text[: begins[FIRST]] if len(begins) > FIRST else text
