"""Requirements that each node of a cluster must meet, so that all nodes write the same bytes."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

from pipeline.storage.folder import Folder
from schemas import __version__
from schemas.code_digest import code_digest
from schemas.errors import BuildError


@dataclass(frozen=True, slots=True)
class NodeRequirements:
    """Requirements that every node must meet.

    file: name of a file in the dataset's folder that every node must see; None if nodes need not
        share a folder
    versions: the driver's versions of all code that determines a dataset's bytes. The driver is the
        process that runs the build
    """

    file: str | None
    versions: str

    def refuse_other(self, out: Folder) -> None:
        """Refuse to work on a node that does not meet the requirements.

        Raises:
            BuildError: the node does not meet a requirement. The message names the node.
        """
        if self.file is not None and out.size(self.file) is None:
            raise BuildError(
                f"{out.where()}: node {socket.gethostname()} does not see this folder; "
                "use a folder that all nodes share, or URLs"
            )
        if versions() != self.versions:
            raise BuildError(
                f"node {socket.gethostname()} has {versions()}, "
                f"but the driver has {self.versions}: "
                "all nodes need the same versions to write the same bytes"
            )


@cache
def versions() -> str:
    """Return this node's versions of all code that determines a dataset's bytes."""
    return f"thdpack {__version__} (code {code_digest()}) with pyarrow {version('pyarrow')}"
