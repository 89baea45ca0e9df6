"""Help texts of command-line options, from the docstrings below their fields."""

from __future__ import annotations

from typing import Annotated, TypeVar, get_type_hints

T = TypeVar("T")


def with_flowing_help(options: type[T]) -> type[T]:
    """Give tyro each field's docstring as one paragraph, which it wraps itself.

    Without this, the help keeps the line breaks of the source. A help text that a field states
    itself takes precedence.
    """
    import docstring_parser  # a dependency of tyro; neither is loaded by workers
    import tyro

    texts: dict[str, str] = {}
    for base in reversed(options.__mro__[:-1]):
        for field in docstring_parser.parse_from_object(base).params:
            texts[field.arg_name] = " ".join((field.description or "").split())
    hints = get_type_hints(options, include_extras=True)
    options.__annotations__ = {
        name: Annotated[hint, tyro.conf.arg(help=texts[name])] if name in texts else hint
        for name, hint in hints.items()
    }
    return options
