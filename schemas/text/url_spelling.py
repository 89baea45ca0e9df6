"""Spelling mistakes of a URL that would otherwise be taken as the name of a local folder."""

from __future__ import annotations

import re
from typing import Final

_STORES: Final = "s3|s3a|gs|gcs|az|abfs|abfss|hf|http|https"
_MISSPELT: Final = re.compile(rf"({_STORES}):(//?)(?=[^/])", re.IGNORECASE)


def corrected_url(text: str) -> str | None:
    """Return the URL that was meant by a scheme with one slash or in capitals; None if correct."""
    found = _MISSPELT.match(text)
    if found is None or (found[2] == "//" and found[1].islower()):
        return None
    return f"{found[1].lower()}://{text[found.end() :]}"
