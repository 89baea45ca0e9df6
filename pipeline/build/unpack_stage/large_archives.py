"""Choose the archives (compressed inputs) that are divided among several map tasks."""

from __future__ import annotations

from typing import Final

from pipeline.build.build_plan import Plan
from pipeline.storage.folder import Folder
from pipeline.storage.urls import is_url

FEWEST_WORKERS = 3
"""With two workers, a map task that decompresses in a thread of its own already uses both cores."""
LEAST_BYTES = 16 << 20
"""Minimum size in bytes of an archive that is divided."""
_PARTS: Final = 2.5


def large_archives(planned: Plan, work: Folder, workers: int) -> list[int]:
    """Return the indices of the sources that a build decompresses itself.

    An archive is large if the build would wait for the task that reads it: if it holds more than
    2.5 of `workers` equal parts of all inputs. With many archives of similar size, every worker
    reads whole archives, which takes less CPU time.

    Args:
        work: folder for the sections. Archives are not divided if it is in an object store.
        workers: number of worker processes, or of cores if there are fewer.
    """
    if workers < FEWEST_WORKERS or not work.local:
        return []
    share = min(1.0, _PARTS / workers)
    least = max(LEAST_BYTES, share * planned.input_bytes)
    return [
        i
        for i, source in enumerate(planned.sources)
        if source.compression != "none"
        and source.format == "fasta"
        and source.bytes >= least
        and not is_url(source.url)
    ]
