"""The shape that all buckets of a dataset, or of a mixture, have in common."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.manifest import Manifest


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketShape:
    """Sizes that all buckets of a reader have in common.

    capacity: number of tokens in a bucket
    slots: number of sequences and tail pieces (parts of the padding), together, that cu_seqlens has
        room for
    max_seqlen: upper limit of the number of tokens in a sequence or tail piece
    vocabulary: size of the vocabulary; all token ids are below this number
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
