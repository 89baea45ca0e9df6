"""Import a package's public names at first use, so that importing one module loads no others."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, **modules: tuple[str, ...]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__` (PEP 562). `__getattr__` imports a public
    name from its module. `__dir__` lists the public names.

    Args:
        package: the package's `__name__`.
        modules: exported names, for each of the package's modules and those of its sub-packages.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def getattr_of_package(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(homes[name])
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ModuleNotFoundError(
                f"{name} needs torch, which is not installed: install the extra `train`",
                name="torch",
            ) from error
        return getattr(module, name)

    return getattr_of_package, lambda: sorted(homes)
