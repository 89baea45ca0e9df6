"""The command that installs an extra, for messages about a missing library."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[1]
"""Root of the repository, or a folder of site-packages if a wheel was installed."""


def install_command(extra: str) -> str:
    """Return the command that installs thdpack with an extra.

    In a checkout, it installs the checkout, from any current folder. If a wheel was installed, pip
    finds it, and adds the extra's packages.
    """
    if not (_ROOT / "pyproject.toml").is_file():
        return f'pip install "thdpack[{extra}]"'
    return f"pip install -e '{'.' if Path.cwd() == _ROOT else _ROOT}[{extra}]'"
