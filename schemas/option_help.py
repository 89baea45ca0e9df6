"""Help texts of command-line options, from the docstrings below their fields."""

from __future__ import annotations

from typing import Annotated, TypeVar, get_type_hints

T = TypeVar("T")


def with_flowing_help(options: type[T]) -> type[T]:
    """Pass each field's docstring to tyro as one paragraph, so that tyro wraps its lines.

    Without this function, the help has the line breaks of the source. A help text in a field's
    tyro settings takes precedence.
    """
    import docstring_parser  # a dependency of tyro. Workers import neither of them.
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
