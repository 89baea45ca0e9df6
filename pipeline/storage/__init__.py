"""Files on local disks and in object stores: open, list, retry, and write atomically.

`Folder` is the interface to disks and stores. Start reading at `folder.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.storage.folder import Folder
    from pipeline.storage.local_folder import LocalFolder
    from pipeline.storage.object_folder import ObjectFolder
    from pipeline.storage.open_folder import folder_of
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        folder=("Folder",),
        local_folder=("LocalFolder",),
        object_folder=("ObjectFolder",),
        open_folder=("folder_of",),
    )

__all__ = ["Folder", "LocalFolder", "ObjectFolder", "folder_of"]
