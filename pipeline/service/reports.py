"""Names of the reports of generations."""

from __future__ import annotations

from typing import Final

from pipeline.storage.open_folder import folder_of
from pipeline.storage.urls import local_path

FOLDER: Final = "reports"
"""Folder of the reports in the dataset."""
KEPT: Final = 100
"""Number of reports that are kept."""


def report_name(generation: int) -> str:
    """Return the name of a generation's report in the dataset's folder."""
    return f"{FOLDER}/{generation}.html"


def make_folder(dataset: str) -> None:
    """Create the folder of the reports in a local dataset. `thdpack stats` creates no folders.

    Raises:
        OSError: the folder cannot be created.
    """
    path = local_path(dataset)
    if path is not None:
        (path / FOLDER).mkdir(exist_ok=True)


def remove_old_report(dataset: str, generation: int) -> None:
    """Remove the report of the generation that is KEPT generations older.

    Raises:
        ThdpackError, OSError: it cannot be removed.
    """
    if generation > KEPT:
        folder_of(dataset).remove(report_name(generation - KEPT))


def report_url(dataset: str, generation: int) -> str:
    """Return the path or URL of a generation's report."""
    return f"{dataset.rstrip('/')}/{report_name(generation)}"
