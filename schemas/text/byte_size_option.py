"""The type of command line options that take a size in bytes."""

from __future__ import annotations

from typing import Annotated

import tyro

from schemas.text.byte_size import parse_bytes


def _read(words: list[str]) -> int:
    try:
        return parse_bytes(words[0], name="")
    except ValueError:
        raise ValueError("expected a size, such as 512M or 2G") from None


def _text(size: int) -> str:
    return f"{size >> 30}G" if size % (1 << 30) == 0 else str(size)


ByteSize = Annotated[
    int,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="SIZE",
        instance_from_str=_read,
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [_text(value)],
    ),
]
"""A number of bytes. On the command line, it may have a unit: 512M, 2G."""
