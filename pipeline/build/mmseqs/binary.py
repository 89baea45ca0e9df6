"""Find the command `mmseqs` and its version."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from typing import Final

from schemas.errors import BuildError, OptionError

REMEDY: Final = (
    "install it, for example by `apt-get install mmseqs2` or `conda install -c bioconda mmseqs2`, "
    "so that the command `mmseqs` is on PATH"
)


def find_mmseqs(option: str) -> str:
    """Return the path of `mmseqs`.

    Args:
        option: option that needs MMseqs2, without the leading `--`, for the message.
    Raises:
        OptionError: the command is not on PATH.
    """
    path = shutil.which("mmseqs")
    if path is None:
        raise OptionError(f"--{option} mmseqs:… needs MMseqs2, which was not found: {REMEDY}")
    return path


@cache
def mmseqs_version(path: str) -> str:
    """Return the version that `mmseqs` prints, such as 14-7e284.

    Raises:
        BuildError: the command fails.
    """
    try:
        found = subprocess.run(
            [path, "version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"{path} version failed ({error}): {REMEDY}") from error
    return found.stdout.strip()
