"""A digest of the running code, to tell commits of the same version apart."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import xxhash

_BUILD_FOLDERS: Final = (
    "schemas",
    "packers",
    "pipeline/storage",
    "pipeline/inputs",
    "pipeline/reader",
    "pipeline/executors",
    "pipeline/build",
)
"""Folders whose code determines the bytes of a dataset."""


@cache
def code_digest(*folders: str) -> str:
    """Return a digest of the Python files in `folders`: eight bytes in hexadecimal.

    The default folders are those whose code determines the bytes of a dataset. Compiled kernels
    are left out, because different compilers produce different binaries from the same source. The
    first call in a process takes about 5 ms.
    """
    digest = xxhash.xxh3_64()
    root = Path(__file__).parents[1]
    for folder in folders or _BUILD_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()
