"""The report of a dataset's latest generation, made again whenever a new manifest is committed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Final

from pipeline.report.gather.dataset import dataset_report
from pipeline.report.html.page import page
from pipeline.storage.read_manifest import read_manifest
from pipeline.storage.urls import local_path
from schemas.errors import ThdpackError
from schemas.manifest import MANIFEST_NAME
from schemas.text.generation import LATEST

_STORE_SECONDS: Final = 10.0
"""Time between two requests for the manifest of a dataset in a store."""
_RETRY_SECONDS: Final = 10.0
"""Time after which a report that could not be made is tried again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """The report of a manifest, or the reason why there is none.

    digest: digest of the manifest that the report describes; "" if there is no report
    html: the report; "" if there is none
    trouble: the error because of which the report is missing or old; "" if there is none
    """

    digest: str = ""
    generation: int = 0
    html: str = ""
    trouble: str = ""


@dataclass(slots=True)
class LiveReport:
    """Report of a dataset that may change, or whose first build is unfinished.

    One thread calls `refresh`; others call `get`.
    """

    dataset: str
    _version: object = None
    """Version of the manifest that was read last; None to read it again."""
    _due: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _shown: Shown = Shown()

    def get(self) -> Shown:
        """Return the latest report."""
        with self._lock:
            return self._shown

    def refresh(self) -> bool:
        """Make the report again if the manifest has changed. Return whether there is a new report.

        If it cannot be made, the earlier report stays, with the error.
        """
        if time.monotonic() < self._due:
            return False
        try:
            version = self._manifest_version()
            if version == self._version:
                return False
            report = dataset_report(self.dataset, LATEST)
            html = page(report)
        except (ThdpackError, OSError) as error:
            self._due = time.monotonic() + _RETRY_SECONDS
            before = self.get()
            self._show(
                Shown(
                    digest=before.digest,
                    generation=before.generation,
                    html=before.html,
                    trouble=str(error),
                )
            )
            return False
        self._version = version
        digest, generation = report.manifest_digest or "", report.generation or 0
        self._show(Shown(digest=digest, generation=generation, html=html))
        return True

    def _manifest_version(self) -> object:
        """Return a value that changes with the manifest; None if a local folder has no manifest.

        Raises:
            ThdpackError: the store cannot be reached, or has no manifest.
        """
        folder = local_path(self.dataset)
        if folder is None:
            self._due = time.monotonic() + _STORE_SECONDS
            return read_manifest(self.dataset).digest
        try:
            found = (folder / MANIFEST_NAME).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _show(self, shown: Shown) -> None:
        with self._lock:
            self._shown = shown
