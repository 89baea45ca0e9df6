"""Correct misspelt URLs, which would otherwise be read as names of local folders, and find URLs of
object stores that name no bucket."""

from __future__ import annotations

import re
from typing import Final

_STORES: Final = "s3|s3a|gs|gcs|az|abfs|abfss|hf|http|https"
_MISSPELT: Final = re.compile(rf"({_STORES})(:[/\\]{{0,2}}|//)(?=[^/\\])", re.IGNORECASE)
_NO_BUCKET: Final = re.compile(r"(s3a?|gc?s|az|abfss?):(?:/{1,2}$|///)", re.IGNORECASE)


def corrected_url(text: str) -> str | None:
    """Return the correct URL if the scheme has capitals, or a colon or slash is missing, or
    slashes are backslashes; else None."""
    found = _MISSPELT.match(text)
    if found is None or (found[2] == "://" and found[1].islower()):
        return None
    return f"{found[1].lower()}://{text[found.end() :].replace(chr(92), '/')}"


def url_with_bucket(text: str) -> str | None:
    """Return a pattern to follow, such as s3://BUCKET/PREFIX, if the URL of an object store names
    no bucket (on Azure: no container); else None."""
    found = _NO_BUCKET.match(text)
    if found is None:
        return None
    protocol = found[1].lower()
    return f"{protocol}://{'CONTAINER' if protocol.startswith('a') else 'BUCKET'}/PREFIX"
