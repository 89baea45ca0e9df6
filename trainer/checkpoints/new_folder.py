"""The folder of a run that was refused before it wrote a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer.distributed.topology import Topology


@contextmanager
def removed_if_empty(out: Path, topology: Topology) -> Iterator[None]:
    """At the end, remove `out` and its parents, if they are empty and did not exist before."""
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        yield
    finally:
        if topology.is_main:
            with suppress(OSError):  # a folder that is not empty, or has been removed
                for folder in new:
                    folder.rmdir()
