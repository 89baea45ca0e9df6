"""Find a file that a manifest names but its dataset lacks.

On an object store, this costs one request for each file.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pipeline.storage.folder import Folder
from pipeline.storage.retries import AT_ONCE
from schemas.manifest import Manifest


def missing_file(manifest: Manifest, out: Folder) -> str | None:
    """Return a message about the first file that is missing or has the wrong size, or None."""
    with ThreadPoolExecutor(AT_ONCE) as threads:  # a store answers many requests in parallel
        sizes = threads.map(out.size, (entry.name for entry in manifest.files()))
        for entry, size in zip(manifest.files(), sizes, strict=True):
            if size != entry.bytes:
                return f"{out.where(entry.name)}: missing, or its size is wrong"
    return None
