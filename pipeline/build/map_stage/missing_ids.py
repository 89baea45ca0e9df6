"""Warn of tables that lack the column of ids. All records of such a table have empty ids.

The build does not guess another column from its name. A column such as `name` or `entry` may hold
anything, and a wrong choice would stay in the dataset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipeline.build.build_plan import Plan
from pipeline.build.options import DatasetOptions
from pipeline.build.task_results import MapResult
from pipeline.build.tasks import MapTask
from pipeline.inputs.formats.column_names import column_named, id_column_in
from pipeline.inputs.formats.registry import FORMATS
from schemas.text.phrases import plural

_MOST_NAMED: Final = 20
"""Maximum number of columns that a warning names."""


def columns_without_ids(task: MapTask) -> tuple[str, ...]:
    """Return the columns of a task's table if it lacks the column of ids; otherwise, an empty
    tuple.

    Raises:
        InputError: the table cannot be read.
    """
    columns = FORMATS[task.source.format].columns
    if columns is None:
        return ()
    names = columns(task.source)
    return tuple(names) if id_column_in(names, task.options.id_column) is None else ()


def missing_id_warnings(
    options: DatasetOptions, planned: Plan, results: Sequence[MapResult]
) -> list[str]:
    """Return one line about all tables that lack the column of ids; [] if no table lacks it.

    Args:
        results: results of all map tasks, in the order of the plan's ranges.
    """
    found = [
        (planned.sources[i], result.columns_without_ids)
        for (i, _, _), result in zip(planned.ranges, results, strict=True)
        if result.columns_without_ids
    ]
    if not found:
        return []
    first, columns = found[0]
    name = "standard input" if first.name == "-" else first.url
    others = f" and {plural(len(found) - 1, 'other table')}" if len(found) > 1 else ""
    line = f"{name}{others}: no column 'id', 'Entry' or 'accession', so the records have empty ids"
    residues = column_named(options.sequence_column, columns)
    named = [column for column in columns if column != residues]
    if named:
        line += f"; choose a column with --id-column: {', '.join(named[:_MOST_NAMED])}"
    return [line]
