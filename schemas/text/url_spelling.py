"""Correct misspelt URLs, which would otherwise be read as names of local folders, and find URLs of
object stores that name no bucket or an impossible one."""

from __future__ import annotations

import difflib
import re
from typing import Final

_STORES: Final = "s3|s3a|gs|gcs|az|abfs|abfss|hf|http|https"
_MISSPELT: Final = re.compile(rf"({_STORES})(:[/\\]{{0,2}}|//)(?=[^/\\])", re.IGNORECASE)
_NO_BUCKET: Final = re.compile(r"(s3a?|gc?s|az|abfss?):(?:/{1,2}$|///)", re.IGNORECASE)

_S3_BUCKET: Final = re.compile(r"s3a?://(arn:[^\s]*|[\w.\-*?\[\]{},!]{1,255})(/|$)", re.ASCII)
"""Pattern of a URL on S3. A bucket's name may be a pattern of names."""


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


def holds_wrong_bucket(text: str) -> bool:
    """Return whether a URL on S3 names a bucket that cannot exist, such as `my bucket`."""
    return text.startswith(("s3://", "s3a://")) and _S3_BUCKET.match(text) is None


def similar_scheme(scheme: str) -> str | None:
    """Return the scheme of a store that a user may have meant, such as s3 for ss3; None if no
    scheme is similar."""
    return next(iter(difflib.get_close_matches(scheme.lower(), _STORES.split("|"), 1, 0.7)), None)
