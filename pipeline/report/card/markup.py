"""Write texts that may contain any character into Markdown and YAML.

Names of inputs come from files, so they may look like Markdown, HTML or YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

from pipeline.report.render.printable import printable

_SPECIAL: Final = re.compile(r"(?<=www)\.|(?<![^\W_])_|_(?![^\W_])|[^\w .,;/+=%()-]|  +")
"""Characters and runs of blanks that Markdown or HTML may interpret. They include the full stop of
`www.`, which would make a link, but no underscore inside a word."""


def escaped(text: str) -> str:
    """Return Markdown that displays `text` as it is, on one line.

    Special characters are written as HTML entities, such as `&#124;` for `|`. Markdown never
    interprets these, not even in a table. Control characters appear as codes such as `\\x1b`.
    """
    line = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    return _SPECIAL.sub(lambda found: "".join(f"&#{ord(c)};" for c in found[0]), line)


def code(text: str) -> str:
    """Return Markdown that displays `text` in a fixed-pitch font.

    The content of `<code>` may hold any character, even in a table; text in backticks may not.
    """
    return f"<code>{escaped(text)}</code>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. The texts of the cells must be Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def yaml_text(text: str) -> str:
    """Return text as a YAML scalar in double quotes. YAML accepts JSON's quotes and escapes."""
    return json.dumps(printable(text), ensure_ascii=False)
