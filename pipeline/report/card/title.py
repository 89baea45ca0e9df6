"""Title and summary of a dataset, for croissant.json and README.md."""

from __future__ import annotations

from typing import Final

from pipeline.report.card.stated import Stated
from pipeline.report.render.printable import printable, shortened
from schemas.manifest import Manifest
from schemas.records import Status
from schemas.text.phrases import plural

_MOST_NAMED: Final = 3
"""Maximum number of inputs in a title."""


def title(manifest: Manifest, stated: Stated) -> str:
    """Return the dataset's title: the release of its inputs, or the names of its inputs."""
    if stated.source_release:
        return f"{stated.source_release}, packed"
    names = [shortened(printable(entry.name)) for entry in manifest.inputs[:_MOST_NAMED]]
    more = len(manifest.inputs) - len(names)
    return f"{', '.join(names)}{f' and {more:,} more' if more else ''}, packed"


def summary(manifest: Manifest, stated: Stated) -> str:
    """Return a description of the dataset, in plain text."""
    count = manifest.records_by_status.get(Status.KEPT, 0)
    kept = plural(count, "protein sequence")
    if (sampled := manifest.sampled_clusters) is not None:
        kept = f"{count - sampled.members + sampled.clusters:,} of {kept}"
    buckets = sum(split.buckets for split in manifest.splits.values())
    tokens = sum(split.tokens for split in manifest.splits.values())
    release = f" from {stated.source_release}" if stated.source_release else ""
    return (
        f"{kept}{release}, tokenized with the vocabulary {manifest.vocabulary}, shuffled, and "
        f"packed end to end into {plural(buckets, 'bucket')} of {manifest.capacity:,} tokens. "
        f"The buckets hold {tokens:,} tokens, padding not counted. No sequence has more than "
        f"{manifest.max_seq_len:,} tokens. Built by thdpack {manifest.version}. "
        f"The digest of the manifest is {manifest.digest}."
    )
