"""Environment of a child process that runs Python with our packages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ERRORS_ON_STDOUT: Final = "THDPACK_ERRORS_ON_STDOUT"
"""Environment variable with which `thdpack preprocess` prints its error on standard output, without
its own name and without notes. The parent process can then print the error under its own name."""
_PACKAGES_FOLDER: Final = str(Path(__file__).parents[1])


def python_environment(more: Mapping[str, str] = {}) -> dict[str, str]:
    """Return an environment in which Python finds our packages first (decision 0014)."""
    path = os.pathsep.join(filter(None, (_PACKAGES_FOLDER, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", **more}
