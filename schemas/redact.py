"""What may be shown of a URL: everything but what lets somebody in."""

from __future__ import annotations

import re
from typing import Final

_USER: Final = re.compile(r"(?<=://)(?:[^/\s@?#'\"]*|[^/\s@:]*:(?!\d+/)[^\s@'\"]*)@")
"""The second alternative: secret keys hold slashes, which nobody encodes."""
_QUERY: Final = re.compile(r"(\w://[^\s?'\"<>]*)\?[^\s'\"<>]*")


def names_user(url: str) -> bool:
    """Whether a URL says who asks."""
    return _USER.search(url) is not None


def without_credentials(text: str) -> str:
    """A text whose URLs have lost user names, passwords and queries: signatures and tokens travel in those."""
    return _QUERY.sub(r"\1", _USER.sub("", text))
