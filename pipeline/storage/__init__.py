"""Files on local disks and in object stores: open, list, retry, and write completely or not at all.

A `Folder` hides which of the two it is. Start at `folder.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.storage.folder import Folder, LocalFolder, folder_of
    from pipeline.storage.object_folder import ObjectFolder
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        folder=(
            "Folder",
            "LocalFolder",
            "folder_of",
        ),
        object_folder=("ObjectFolder",),
    )

__all__ = ["Folder", "LocalFolder", "ObjectFolder", "folder_of"]
