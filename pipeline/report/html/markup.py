"""HTML from functions: `tag("td", "a < b", class_="n")`. What is not `Markup` is escaped, so nothing from outside can be forgotten.

Costs about 2 µs a tag; a page has a few thousand. Not a template language: pages are assembled in Python.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final

from pipeline.report.render.printable import printable

_VOID: Final = frozenset({"meta", "br", "col"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Iterable["Child"] | None
"""What a tag may hold: text (escaped), markup (as it is), nothing, or a series of these."""


def escape(text: str) -> Markup:
    """`text` so that a browser shows it as it stands; what has no shape, or could mislead, as `\\x1b` or `\\u202e`."""
    return Markup(html.escape(printable(text)))


def tag(name: str, /, *children: Child, **attributes: str | None) -> Markup:
    """An element. `class_` and `aria_label` give `class` and `aria-label`; an attribute that is None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(
        f"<{name}{written}>" if name in _VOID else f"<{name}{written}>{join(children)}</{name}>"
    )


def join(children: Child) -> Markup:
    """Children one after another."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str):
        return escape(children)
    return Markup("".join(map(join, children)))


def shortened(text: str, length: int = 60) -> str:
    """`text`, its middle left out if it is longer."""
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[: length - 1 - half]}…{text[-half:]}"


def name(text: str) -> Markup:
    """A name from outside: in fixed pitch, isolated from the direction of what is around it, its middle left out if it is long."""
    short = shortened(text)
    return tag(
        "bdi",
        short or "(empty)",
        class_="name",
        title=None if short == text else shortened(text, 400),
    )
