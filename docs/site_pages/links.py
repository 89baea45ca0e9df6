"""Rewrite the links of a page: from files of the repository to pages of the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_LINK: Final = re.compile(
    r"(?P<code>```.*?```|`[^`\n]+`(?!\]\())|(?P<start>!?\[(?P<text>[^\]]*)\])\((?P<to>[^)\s]+)\)"
    r"|(?P<tag>src(?:set)?=\")(?P<file>[^\"]+)",
    re.DOTALL,
)


def site_links(markdown: str, source: str, page: str, repo: Path, moved: Mapping[str, str]) -> str:
    """Return a page's Markdown with links that are valid on the site.

    The text of a link to a file that is not on the site, such as source code, stays as plain text.
    A link to a file that does not exist stays as it is, so that mkdocs reports it.

    Args:
        source: path of the page's file in the repository.
        page: path of the page on the site.
        moved: for files outside docs/ and for folders: the page of the site that has their content.
    """

    def rewritten(match: re.Match[str]) -> str:
        if match["code"]:
            return match[0]
        target = match["to"] or match["file"]
        path, hash_sign, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:") or not path:
            return match[0]
        found = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if found in moved:
            on_site = moved[found]
        elif found.startswith("docs/") and (repo / found).is_file():
            on_site = found.removeprefix("docs/")
        elif (repo / found).exists() and match["text"]:
            return str(match["text"])
        else:
            return match[0]
        link = posixpath.relpath(on_site, posixpath.dirname(page) or ".") + hash_sign + anchor
        return f"{match['start']}({link})" if match["start"] else f"{match['tag']}{link}"

    return _LINK.sub(rewritten, markdown)
