"""URLs without credentials, for messages and files."""

from __future__ import annotations

import re
from typing import Final

_SECRET: Final = re.compile(
    r"(\b(?:s3a?|gs|gcs)://(?=[^/\s@:'\"]*:)|\w://(?=[^/\s@:'\"]*:(?!\d{1,5}/)))[^\s'\"]*@"
)
"""A user and a secret, up to the last `@`: keys hold slashes, passwords hold any character, both
unencoded. Digits between a colon and a slash are a port, but stores have none."""
_USER: Final = re.compile(r"(?<=://)[^/\s@?#'\"]*@")
_QUERY: Final = re.compile(r"(https?://[^\s?'\"<>]*)\?[^\s'\"<>]*")
"""Query of a web address. In a store's URL `?` is a wildcard."""


def holds_secret(url: str) -> bool:
    """Whether a URL holds credentials. Only in web addresses may a user name be one."""
    return (
        without_credentials(url) if re.search("https?://", url) else _without_secret(url)
    ) != url


def without_credentials(text: str) -> str:
    """Return a text whose URLs have lost user names, passwords and, on the web, their queries.

    Queries carry signatures and tokens.
    """
    return _QUERY.sub(r"\1", _USER.sub("", _without_secret(text)))


def _without_secret(text: str) -> str:
    return _SECRET.sub(r"\1", text)
