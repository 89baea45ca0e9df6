"""Find the split of a record from its hash, with exact fractions."""

from __future__ import annotations

from fractions import Fraction


def split_of_hash(digest: bytes, option: str) -> str:
    """Return the split of a record.

    Args:
        digest: xxh3_128 (16 bytes) of the token ids of the record's first max_seq_len - 2 residues.
        option: value of --split.
    """
    shares = {name: Fraction(share) for name, share in (p.split("=") for p in option.split(","))}
    place = Fraction(int.from_bytes(digest[8:], "big"), 2**64)
    valid = shares.get("valid", Fraction(0))
    if place < valid:
        return "valid"
    return "test" if place < valid + shares.get("test", Fraction(0)) else "train"
