"""The real corpora of ../shared/data: their first records, or all under THDPACK_LONG.

Reading a whole corpus with the slow oracle takes seconds.
"""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

FIRST = 2_000
"""Number of records of a corpus that tests read by default."""


def corpus_text(path: Path) -> bytes:
    """Return the decompressed text of a corpus, up to its record FIRST."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if "THDPACK_LONG" in os.environ:
        return text
    begins = [found.start() for found in re.finditer(rb"^>", text, re.MULTILINE)]
    return text[: begins[FIRST]] if len(begins) > FIRST else text
