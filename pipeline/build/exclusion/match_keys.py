"""Keys of matches. A key is one integer that holds the kind, file and entry of a record's match.

| bits | meaning |
|---|---|
| 56 to 62 | index of the kind in EXCLUSION_KINDS |
| 40 to 55 | index of the file |
| 0 to 39 | index of the entry in the file |

If a record has several matches, the match with the smallest kind is preferred. The entries of one
file are in order of preference. If entries of different files match with the same kind,
`ExclusionIndex.preferred` compares the entries themselves.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

NO_MATCH: Final = np.iinfo(np.int64).max
_KIND: Final = 56
_FILE: Final = 40
MOST_FILES: Final = 1 << (_KIND - _FILE)


def match_keys(kind: int, file: int, entries: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a key for each entry, int64[N]; NO_MATCH for a negative entry."""
    return np.where(entries >= 0, (kind << _KIND) | (file << _FILE) | entries, NO_MATCH)


def kinds_of(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of each key's kind, int64[N]."""
    return keys >> _KIND


def files_of(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of each key's file, int64[N]."""
    return (keys >> _FILE) & (MOST_FILES - 1)


def divided_key(key: int) -> tuple[int, int, int]:
    """Return the indices of a key's kind, file and entry."""
    return key >> _KIND, (key >> _FILE) & (MOST_FILES - 1), key & ((1 << _FILE) - 1)
