"""Make the report of a dataset with `--against`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.build.named_files.named_file import without_mmseqs
from pipeline.build.progress.reporter import Reporter
from pipeline.report.gather.against.read_entries import read_entries
from pipeline.report.gather.against.similar import refuse_unsearchable, similar_entries
from pipeline.report.gather.dataset import dataset_report
from pipeline.report.model import Report
from schemas.text.generation import LATEST, Generation


def report_against(
    url: str, generation: Generation, names: Sequence[str], progress: Reporter
) -> Report:
    """Return the report of a dataset, including its overlap with other files.

    Args:
        names: path or URL of each file; `mmseqs:` may precede it.
    Raises:
        InputError: a file cannot be read, or its content is invalid.
        ManifestError, DatasetError: see `dataset_report`.
        BuildError: MMseqs2 is not installed, or failed.
    """
    searched = {name for name in names if without_mmseqs(name)[1]}
    if searched:
        refuse_unsearchable(url)
    report = dataset_report(url, generation, [read_entries(name, progress) for name in names])
    read = report.manifest_digest or LATEST  # the dataset may have grown meanwhile
    overlaps = (
        replace(found, similar=similar_entries(url, read, found.name, progress))
        if found.name in searched
        else found
        for found in report.against
    )
    return replace(report, against=tuple(overlaps))
