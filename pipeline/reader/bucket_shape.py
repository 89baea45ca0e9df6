"""The shape that all buckets of a dataset, or of a mixture, have in common."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.manifest import Manifest


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketShape:
    """Sizes that all buckets of a run have in common.

    capacity: tokens in a bucket
    slots: room for sequences and tail pieces in cu_seqlens
    max_seqlen: no sequence and no tail piece is longer
    vocabulary: token ids are below this
    """

    capacity: int
    slots: int
    max_seqlen: int
    vocabulary: int

    @classmethod
    def of(cls, manifest: Manifest) -> BucketShape:
        return cls(
            capacity=manifest.capacity,
            slots=manifest.slots,
            max_seqlen=manifest.longest_span,
            vocabulary=len(manifest.vocabulary_object),
        )
