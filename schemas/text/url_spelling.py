"""Correct misspelt URLs, which would otherwise be read as names of local folders."""

from __future__ import annotations

import re
from typing import Final

_STORES: Final = "s3|s3a|gs|gcs|az|abfs|abfss|hf|http|https"
_MISSPELT: Final = re.compile(rf"({_STORES})(://?|//)(?=[^/])", re.IGNORECASE)


def corrected_url(text: str) -> str | None:
    """Return the correct URL if the scheme has capitals, or a colon or slash is missing; else
    None."""
    found = _MISSPELT.match(text)
    if found is None or (found[2] == "://" and found[1].islower()):
        return None
    return f"{found[1].lower()}://{text[found.end() :]}"
