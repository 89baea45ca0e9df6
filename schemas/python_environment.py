"""Environment of a child process that runs Python with our packages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PACKAGES_FOLDER: Final = str(Path(__file__).parents[1])


def python_environment(more: Mapping[str, str] = {}) -> dict[str, str]:
    """Return an environment in which Python finds our packages first (decision 0014)."""
    path = os.pathsep.join(filter(None, (_PACKAGES_FOLDER, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", **more}
