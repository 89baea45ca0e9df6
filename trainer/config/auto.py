"""Options whose value is a whole number or `auto`."""

from __future__ import annotations

from typing import Annotated, Final

import tyro

from schemas.text.option_help import whole

AUTO: Final = -1
"""Value that stands for `auto` until the trainer has chosen a number."""


def _parsed(words: list[str]) -> int:
    try:
        return AUTO if words[0] == "auto" else whole(words[0])
    except ValueError:
        raise ValueError("expected auto or a whole number") from None


AutoInt = Annotated[
    int,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="auto|INT",
        instance_from_str=_parsed,
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: ["auto" if value == AUTO else str(value)],
    ),
]
"""A whole number, or `auto` on the command line."""
