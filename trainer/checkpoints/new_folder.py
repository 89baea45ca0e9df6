"""The folders that a run creates: check in a dry run that the run's folder can be created, and
report that it cannot be written. Remove this folder if the run fails before it has written a file,
and a new cache after a dry run.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pipeline.reader.cache.cache_folder import default_cache_dir, remove_unused_lock
from schemas.errors import ThdpackError
from trainer.distributed.topology import Topology

T = TypeVar("T")


def with_folder_errors(work: Callable[[Path], T], out: Path) -> T:
    """Return `work(out)`. Turn an OSError into an error that names --out and the remedy.

    Raises:
        ThdpackError: the folder cannot be created or written.
    """
    try:
        return work(out)
    except OSError as error:
        is_file = isinstance(error, FileExistsError)
        cause = os.strerror(errno.ENOTDIR if is_file else error.errno or errno.EIO)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = f"{'make room or ' if full else ''}choose another --out"
        raise ThdpackError(f"cannot write to --out {out}: {cause}; {remedy}") from error


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


@contextmanager
def new_cache_removed(cache_dir: str, topology: Topology) -> Iterator[None]:
    """At the end of the context, remove the cache of shards if it is new and holds no shard.

    Args:
        cache_dir: the option --cache-dir; "" means the default folder.
    """
    folder = Path(cache_dir) if cache_dir else default_cache_dir()
    is_new = not folder.exists()
    with removed_if_empty(folder, topology):
        try:
            yield
        finally:
            if is_new and topology.is_main:
                remove_unused_lock(folder)


def exists_or_creatable(out: Path) -> bool:
    """Return whether a folder exists. If not, check that it could be created.

    Raises:
        ThdpackError: the folder could not be created.
    """
    return with_folder_errors(_exists_or_creatable, out)


def _exists_or_creatable(out: Path) -> bool:
    if out.exists():
        return True
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(parent))
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(parent))
    return False
