"""Settings of `mmseqs easy-linclust`, for `--clusters mmseqs:0.5`.

These settings are given explicitly, because their defaults may differ between versions of MMseqs2.
`cluster_records.py` adds the minimum identity. All other settings keep their defaults. The clusters
do not depend on the number of threads or on the memory.
"""

from __future__ import annotations

from typing import Final

from schemas.errors import OptionError

SETTINGS: Final = (
    *("--dbtype", "1"),  # proteins, even if all letters are A, C, G or T
    *("-c", "0.8"),
    *("--cov-mode", "0"),  # the alignment covers at least 80 % of each sequence
    *("-e", "0.001"),
    *("--cluster-mode", "0"),
    *("--kmer-per-seq", "21"),
    *("--max-seq-len", "65535"),
    *("-v", "2"),
)


def linclust_identity(value: str, option: str = "clusters") -> str:
    """Return the minimum identity in `mmseqs:0.5`, as text.

    Args:
        option: option that has this value, for the message.
    Raises:
        OptionError: the identity is not a number above 0 and at most 1.
    """
    text = value.partition(":")[2]
    try:
        identity = float(text)
    except ValueError:
        identity = 0
    if not 0 < identity <= 1:
        raise OptionError(
            f"--{option} {value}: expected a table of clusters, or mmseqs:IDENTITY with an "
            "identity above 0 and at most 1, such as mmseqs:0.5"
        )
    return f"{identity:g}"
