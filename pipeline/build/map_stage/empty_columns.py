"""Warn of columns in `--where` that are null in every record: comparisons with them are null."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.build.filters.where import where
from pipeline.build.options import DatasetOptions
from pipeline.build.task_results import MapResult, PreparedFile


def empty_column_warnings(
    options: DatasetOptions, prepared: Sequence[PreparedFile], results: Sequence[MapResult]
) -> list[str]:
    """Return a line about the columns of --where that are null in every record; [] if there is
    none.

    Args:
        prepared: files that options name.
        results: results of all map tasks.
    """
    if options.where is None:
        return []
    types = next((tuple(f.columns.items()) for f in prepared if f.option == "metadata"), ())
    stated = {name for result in results for name in result.stated}
    empty = [name for name in where(options.where, types).columns if name not in stated]
    if not empty:
        return []
    return [f"--where: no record has a value for {' or '.join(empty)}, which the expression uses"]
