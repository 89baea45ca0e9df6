"""Remove the new folder of a run that fails before it has written a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer.distributed.topology import Topology


@contextmanager
def removed_if_empty(out: Path, topology: Topology) -> Iterator[None]:
    """At the end of the context, remove those of `out` and its parents that are new and empty."""
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        yield
    finally:
        if topology.is_main:
            with suppress(OSError):  # a folder that is not empty, or has been removed
                for folder in new:
                    folder.rmdir()
