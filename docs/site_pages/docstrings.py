"""Docstrings as Markdown: a list of a class's fields, and tokens such as <pad> as text."""

from __future__ import annotations

import re
from typing import Any

import griffe


class PlainDocstrings(griffe.Extension):
    """Change each docstring before it is parsed. mkdocs.yml names this class."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Escape tokens in the docstring of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = escaped(obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """List the fields of a class. Its members are known only now."""
        if cls.docstring:
            cls.docstring.value = with_list(cls.docstring.value, fields=set(cls.members))


def with_list(text: str, *, fields: set[str]) -> str:
    """Return a docstring with `name: text` as a list item if `name` is in `fields`."""
    lines: list[str] = []
    for line in text.split("\n"):
        match = re.match(r"(\w+): +(?=\S)", line)
        if match and match[1] in fields:
            if lines and lines[-1] and not lines[-1].startswith(("- ", " ")):
                lines.append("")
            line = f"- `{match[1]}`: {line[match.end() :]}"
        lines.append(line)
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Return a docstring with `<` escaped outside of code."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        piece if number % 2 else re.sub(r"<(?=\w)", "&lt;", piece)
        for number, piece in enumerate(pieces)
    )
