"""Names of a dataset's files that no manifest lists: earlier manifests, and the hash index."""

from __future__ import annotations

from pipeline.build.hash_index.index_state import STATE, read_state
from pipeline.storage.folder import Folder
from pipeline.storage.read_manifest import generation_name
from schemas.manifest import Manifest


def files_beside(manifest: Manifest, out: Folder) -> list[str]:
    """Return the names of the manifests of earlier generations, and of the hash index's files.

    The list is empty for a dataset to which nothing was appended.

    Args:
        manifest: manifest of the latest generation.
        out: the dataset's folder.
    """
    earlier = [generation_name(number) for number in range(1, manifest.generation)]
    if not earlier:
        return []
    return [*earlier, STATE, *(run.name for run in read_state(out, manifest.records).runs)]
