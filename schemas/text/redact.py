"""Remove credentials from URLs, for messages and files."""

from __future__ import annotations

import re
from typing import Final

_SECRET: Final = re.compile(
    r"(\b(?:s3a?|gs|gcs)://(?=[^/\s@:'\"]*:)|\w://(?=[^/\s@:'\"]*:(?!\d{1,5}/)))[^\s'\"]*@"
)
"""Pattern of a user name and a secret, up to the last `@`. Unencoded keys may contain slashes, and
unencoded passwords may contain any character. In a web address, digits between a colon and a slash
count as a port. A store's URL has no port."""
_USER: Final = re.compile(r"(?<=://)[^/\s@?#'\"]*@")
_QUERY: Final = re.compile(r"(https?://[^\s?'\"<>]*)\?[^\s'\"<>]*")
"""Pattern of a web address's query. In a store's URL, `?` is a wildcard instead."""


def holds_secret(url: str) -> bool:
    """Return whether a URL holds credentials.

    A user name without a password counts as credentials only in a web address.
    """
    return (
        without_credentials(url) if re.search("https?://", url) else _without_secret(url)
    ) != url


def without_credentials(text: str) -> str:
    """Return a text without the user names, passwords and queries of its URLs.

    Queries of web addresses are removed, because they may hold signatures and tokens. Queries of
    other URLs stay.
    """
    return _QUERY.sub(r"\1", _USER.sub("", _without_secret(text)))


def _without_secret(text: str) -> str:
    return _SECRET.sub(r"\1", text)
