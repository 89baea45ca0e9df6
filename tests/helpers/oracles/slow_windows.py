"""The place of a record's random window (`--long crop`), computed with Python's integers."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def mixed(value: int) -> int:
    """Return SplitMix64's next output for a state (Steele, Lea & Flood, OOPSLA 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def slow_start(digest: bytes, ordinal: int, residues: int, most: int, *, seed: int) -> int:
    """Return the index of the first residue of a record's window.

    Args:
        digest: xxh3_128 of the record's tokens, 16 bytes.
        residues: number of residues of the record.
        most: maximum number of residues of the window.
    """
    key = mixed(seed)
    for part in (int.from_bytes(digest[:8]), int.from_bytes(digest[8:]), ordinal, 0):
        key = mixed(key ^ part)
    windows = max(residues - most, 0) + 1
    return int((mixed(key ^ _MASK) >> 11) / (1 << 53) * windows)
