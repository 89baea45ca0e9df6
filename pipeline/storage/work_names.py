"""List the work folder of a dataset, which exists only while a build is unfinished."""

from __future__ import annotations

from pipeline.storage.retries import ClosedError, call_with_deadline
from pipeline.storage.urls import file_system, forget_listings, local_path
from schemas.manifest import WORK


def work_names(url: str) -> list[str]:
    """Return the names of the files and folders in a dataset's work folder.

    The list is empty if there is no such folder, or if it cannot be listed. Not every reader of a
    store has the right to list objects, and web servers have no listing.

    Raises:
        ClosedError: the user pressed Ctrl-C.
    """
    folder = local_path(url)
    if folder is not None:
        try:
            return sorted(path.name for path in (folder / WORK).iterdir())
        except OSError:
            return []
    if url.startswith(("http://", "https://")):
        return []
    fs, path = file_system(f"{url.rstrip('/')}/{WORK}")
    forget_listings(fs, url)
    try:
        found: list[str] = call_with_deadline(lambda: fs.ls(path, detail=False), 0)
    except ClosedError:
        raise
    except Exception:  # each store has its own types of errors
        return []
    return sorted(name.rstrip("/").rpartition("/")[2] for name in found)
