"""What a dataset holds, in one screen."""

from __future__ import annotations

from schemas.manifest import Manifest
from schemas.records import Status


def padding_waste(manifest: Manifest) -> float:
    """Share of tokens that would be padding if every sequence took a row of max_seq_len (BSHD)."""
    sequences = sum(totals.sequences for totals in manifest.splits.values())
    tokens = sum(totals.tokens for totals in manifest.splits.values())
    return 1 - tokens / (sequences * manifest.max_seq_len) if sequences else 0.0


def summary_lines(manifest: Manifest) -> list[tuple[str, str]]:
    """Pairs of a name and a value, for people."""
    by_status = manifest.records_by_status
    left_out = ", ".join(
        f"{by_status[s]:,} {s.replace('_', ' ')}"
        for s in Status
        if s not in (Status.KEPT, Status.DUPLICATE) and by_status[s]
    )
    lines = [
        ("records in", f"{sum(by_status.values()):,}"),
        ("kept", f"{by_status[Status.KEPT]:,}"),
        ("duplicate", f"{by_status[Status.DUPLICATE]:,}"),
        ("left out", left_out or "0"),
        (
            "residues",
            f"{manifest.residues_in:,} in, {manifest.residues_kept:,} in buckets, {manifest.residue_counts.get('<unk>', 0):,} of them <unk>",
        ),
    ]
    for split, totals in manifest.splits.items():
        if totals.buckets:
            lines.append(
                (
                    split,
                    f"{totals.buckets:,} buckets, {totals.sequences:,} sequences, {totals.tokens:,} tokens, "
                    f"fill {100 * totals.fill(manifest.capacity):.2f} %, Σ length² spread {totals.spread:.4f}, max / mean {totals.peak:.3f}",
                )
            )
        else:
            lines.append((split, "empty"))
    lines.append(
        (
            "slots",
            f"{manifest.slots} (at most {max(t.seqs_max for t in manifest.splits.values())} sequences in a bucket of {manifest.capacity:,} tokens)",
        )
    )
    lines.append(
        (
            "padding avoided",
            f"{100 * padding_waste(manifest):.1f} % of tokens, were each sequence padded to {manifest.max_seq_len:,} (BSHD)",
        )
    )
    return lines
