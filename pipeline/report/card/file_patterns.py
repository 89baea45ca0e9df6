"""Glob patterns of a dataset's files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_NAME: Final = re.compile(r"/([0-9a-f]{16})-((?:v\d+-)?).*\.")


def file_patterns(names: Iterable[str], *, variants: int = 1) -> list[str]:
    """Return sorted patterns that match files of a manifest.

    Names of files begin with the digest of their build. So a pattern such as
    `train/ea07a83a0ac2902c-*.arrow` does not match files that another build left in the folder. A
    name that does not begin with such a digest is its own pattern.

    Args:
        variants: number of variants of the dataset. If there are several, each pattern matches the
            shards of one variant. Examples are `train/ea07a83a0ac2902c-[0-9r]*.arrow` for variant 0
            and `train/ea07a83a0ac2902c-v1-*.arrow` for variant 1.
    """
    others = "[0-9r]*." if variants > 1 else "*."

    def pattern(name: re.Match[str]) -> str:
        return f"/{name[1]}-{name[2]}{'*.' if name[2] else others}"

    return sorted({_NAME.sub(pattern, name) for name in names})
