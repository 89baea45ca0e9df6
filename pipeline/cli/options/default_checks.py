"""Check the defaults of options without typeguard, so that commands start sooner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import tyro

_STRINGS: Final = tuple[str, ...]


@contextmanager
def default_checks() -> Iterator[None]:
    """Check that the default of an option of type tuple[str, ...] is a tuple of strings. Inside
    this context, tyro calls our check.

    tyro itself would use typeguard, whose import takes 60 ms: a tenth of the time of a small
    `thdpack append`. The function that is replaced is private. If a version of tyro lacks it,
    nothing changes.
    """
    resolver: ModuleType | None = getattr(tyro, "_resolver", None)
    check: Callable[[Any, Any], bool] | None = getattr(resolver, "is_instance", None)
    if resolver is None or check is None:
        yield
        return

    def checked(kind: Any, value: Any) -> bool:
        if kind != _STRINGS:
            return check(kind, value)
        return isinstance(value, tuple) and all(isinstance(word, str) for word in value)

    resolver.is_instance = checked  # type: ignore[attr-defined] # an attribute of the module
    try:
        yield
    finally:
        resolver.is_instance = check  # type: ignore[attr-defined] # see above
