"""The sentence about a file of --against counts equal and similar entries."""

from __future__ import annotations

import pytest

from pipeline.report.model_leaks import FileOverlap, SimilarEntries
from pipeline.report.render.sentences import verdict

SIMILAR = SimilarEntries(
    identity=0.3, coverage=0.5, in_splits={"train": 4, "valid": 7}, in_kept=9, records={}
)


@pytest.mark.parametrize(
    ("in_train", "similar", "said"),
    [
        (0, None, "t.fasta: no sequence of its 12 entries is in train."),
        (0, SIMILAR, "is in train. Similar to a record in train: 4."),
        (3, None, "of its 12 entries, 3 are in train; --exclude leaves them out of a build."),
        (3, SIMILAR, "out of a build. Similar to a record in train: 4."),
    ],
)
def test_the_verdict_counts_equal_and_similar_entries_of_train(
    in_train: int, similar: SimilarEntries | None, said: str
) -> None:
    splits = {"train": in_train, "valid": 5}
    found = FileOverlap(
        name="t.fasta", entries=12, in_splits=splits, in_records=8, by_status={}, similar=similar
    )
    assert verdict(found).endswith(said)
