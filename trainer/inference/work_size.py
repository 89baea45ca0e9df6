"""Estimate the number of tokens that a run of `thdpack embed` or `thdpack score` computes."""

from __future__ import annotations

from schemas.manifest import Manifest


def bucket_tokens(manifest: Manifest, longest: int, *, per_residue: bool) -> float:
    """Return the number of tokens to compute for a bucket of average content, at least 1.

    Args:
        longest: maximum number of tokens that the model sees at once.
        per_residue: whether each residue has a pass of its own.
    """
    if not per_residue:
        return manifest.capacity
    splits = manifest.splits.values()
    return max(1, tokens_per_residue(manifest, longest) / max(1, sum(s.buckets for s in splits)))


def tokens_per_residue(manifest: Manifest, longest: int) -> int:
    """Return the approximate number of tokens to compute, if each residue has a pass of its own.
    Windows that overlap count once.

    Args:
        longest: maximum number of tokens that the model sees at once.
    """
    splits = manifest.splits.values()
    # a sequence of L tokens has L - 2 copies of L tokens, or of `longest`
    return min(
        sum(split.cost_sum for split in splits), sum(split.tokens for split in splits) * longest
    )
