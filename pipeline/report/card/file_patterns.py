"""Glob patterns of a dataset's files."""

from __future__ import annotations

import re
from collections.abc import Iterable


def file_patterns(names: Iterable[str]) -> list[str]:
    """Return sorted patterns that match files of a manifest.

    Names of files begin with the digest of their build, so a pattern such as
    `train/ea07a83a0ac2902c-*.arrow` does not match files that another build left in the folder. A
    name that does not begin with such a digest is its own pattern.
    """
    return sorted({re.sub(r"/([0-9a-f]{16})-.*\.", r"/\1-*.", name) for name in names})
