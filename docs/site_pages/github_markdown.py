"""Differences between GitHub's Markdown, in which the docs are written, and Python-Markdown."""

from __future__ import annotations

import re
from typing import Final

_PICTURE: Final = re.compile(
    r"<picture>\s*<source[^>]*srcset=\"(?P<dark>[^\"]+)\"[^>]*>"
    r"\s*<img src=\"(?P<light>[^\"]+)\"\s+alt=\"(?P<alt>[^\"]+)\">\s*</picture>"
)
_FENCE: Final = re.compile(r"^ *```")
_NESTED: Final = re.compile(r"^( +)(?=[-*] |\d+\. )")


def for_python_markdown(text: str) -> str:
    """Return a page's Markdown as Python-Markdown needs it.

    - A nested list is indented by four spaces, not two.
    - `|` needs no backslash in the code of a table.
    - A picture for the dark theme follows the theme of the site, not of the browser.
    """
    pictures = _PICTURE.sub(
        r"![\g<alt>](\g<light>#only-light)\n![\g<alt>](\g<dark>#only-dark)", text
    )
    lines = pictures.split("\n")
    in_code = False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            in_code = not in_code
        elif not in_code and line.startswith("|"):
            lines[number] = re.sub(r"`[^`]+`", lambda code: code[0].replace(r"\|", "|"), line)
        elif not in_code and (nested := _NESTED.match(line)) and len(nested[1]) < 4:
            lines[number] = "    " + line.lstrip()
    return "\n".join(lines)
