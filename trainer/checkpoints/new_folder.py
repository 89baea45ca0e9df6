"""The folder of a new run: check in a dry run that the folder can be created, and remove the folder
if the run fails before it has written a file.
"""

from __future__ import annotations

import errno
import os
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
            with suppress(OSError):  # a folder is not empty, or was removed meanwhile
                for folder in new:
                    folder.rmdir()


def exists_or_creatable(out: Path) -> bool:
    """Return whether a folder exists. If not, check that it could be created.

    Raises:
        OSError: the folder could not be created.
    """
    if out.exists():
        return True
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(parent))
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(parent))
    return False
