"""Handle the folders that a run creates: its own folder (--out) and the cache of shards.

- Refuse a folder of other files as --out.
- Report an --out that cannot be created or written. A dry run checks --out without creating it.
- Remove a new --out if the run fails before it has written a file.
- Remove a new cache after a dry run.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from pipeline.reader.cache.cache_folder import default_cache_dir, remove_unused_lock
from pipeline.storage.atomic_write import try_folder
from schemas.errors import ThdpackError
from schemas.text.folder_contents import HARMLESS, holds
from trainer.distributed.topology import Topology

T = TypeVar("T")

LAST: Final = "export"
"""Folder of the model of the last step, inside the folder of a run."""
BEST: Final = "export-best"
"""Folder of the model with the best validation loss, inside the folder of a run."""
_OF_A_RUN: Final = ("checkpoints", "options.json", "lock")
"""Names in the folder of a run. The first one of them, the lock, exists before all other files."""
_LOG_ENDINGS: Final = (".log", ".out", ".err")


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
    """At the end of the context, remove `out` and its parents if they are new and empty."""
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


def refuse_file(out: Path, *, whose: str = "the run's folder") -> None:
    """Refuse a file as the folder of a run.

    Args:
        whose: what the folder is, for the message.

    Raises:
        ValueError: `out` is not a folder.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file, expected {whose}: choose another --out")


def refuse_foreign_folder(
    out: Path,
    *,
    own: Collection[str] = _OF_A_RUN,
    whose: str = "the folder of a run",
    example: str = "run",
) -> None:
    """Refuse a folder that holds other files, because a run would write its files among them.

    A missing or empty folder and the folder of a run are accepted. So is a new folder that holds
    only log files, which the user's command line or the scheduler may have created.

    Args:
        own: names of files and folders, of which the folder of a run has at least one. Glob
            patterns are allowed.
        whose: what the folder of a run is, for the message.
        example: name of a new folder, for the message.
    Raises:
        ValueError: the folder holds other files. The message names some of them.
    """
    if not out.is_dir() or any(any(out.glob(name)) for name in own):
        return
    found = [path.name for path in out.iterdir()]
    foreign = [name for name in found if name not in HARMLESS and not name.endswith(_LOG_ENDINGS)]
    if foreign:
        raise ValueError(
            f"--out {out} is neither empty nor {whose} ({holds(foreign)}): choose a new "
            f"folder, such as {out / example}"
        )


def exists_or_creatable(out: Path) -> bool:
    """Return whether a folder exists. If not, check that it could be created.

    Raises:
        ThdpackError: the folder could not be created.
    """
    return with_folder_errors(_exists_or_creatable, out)


def _exists_or_creatable(out: Path) -> bool:
    if out.exists():
        return True
    try_folder(out)
    return False
