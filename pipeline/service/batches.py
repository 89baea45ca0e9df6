"""Decide when a batch begins, and which complete files of the inbox it contains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipeline.service.completeness import Seen

MOST_FILES: Final = 5_000
"""Maximum number of files in a batch. Each file is a task, and the plan holds all tasks."""


def batch_due(
    complete: Sequence[Seen], *, now: float, batch_bytes: float, batch_age: float
) -> list[Seen]:
    """Return the files of the next batch; [] if the service should wait for more files.

    A batch begins when the complete files have `batch_bytes` in total, when there are MOST_FILES of
    them, or when the oldest has waited for `batch_age` seconds. A batch has at least one file. If
    it has several files, they have at most `batch_bytes` in total.

    Args:
        complete: complete files, in order of arrival.
        now: monotonic time.
    """
    size = sum(seen.candidate.bytes for seen in complete)
    old = bool(complete) and now - complete[0].first >= batch_age
    if not complete or not (old or size >= batch_bytes or len(complete) >= MOST_FILES):
        return []
    batch: list[Seen] = []
    size = 0
    for seen in complete[:MOST_FILES]:
        size += seen.candidate.bytes
        if batch and size > batch_bytes:
            break
        batch.append(seen)
    return batch
