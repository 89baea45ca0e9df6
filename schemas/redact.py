"""What may be shown of a URL: everything but what lets somebody in."""

from __future__ import annotations

import re
from typing import Final

_SECRET: Final = re.compile(
    r"(\b(?:s3a?|gs|gcs)://(?=[^/\s@:'\"]*:)|\w://(?=[^/\s@:'\"]*:(?!\d{1,5}/)))[^\s'\"]*@"
)
"""A user and a secret, up to the last `@`: keys hold slashes, and passwords anything, which nobody encodes. Digits between the colon and a slash are a
port, but of stores that have none."""
_USER: Final = re.compile(r"(?<=://)[^/\s@?#'\"]*@")
_QUERY: Final = re.compile(r"(https?://[^\s?'\"<>]*)\?[^\s'\"<>]*")
"""Of web addresses; in a store's `?` stands for any character."""


def holds_secret(url: str) -> bool:
    """Whether a URL lets somebody in. A user is no secret, but of web addresses, where it may be a token."""
    return (
        without_credentials(url) if re.search("https?://", url) else _without_secret(url)
    ) != url


def without_credentials(text: str) -> str:
    """A text whose URLs have lost user names and passwords, and web addresses their queries: signatures and tokens travel in those."""
    return _QUERY.sub(r"\1", _USER.sub("", _without_secret(text)))


def _without_secret(text: str) -> str:
    return _SECRET.sub(r"\1", text)
