"""How much of each input is `<unk>`: a file of qualities or a table is FASTA to the parser, and teaches nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipeline.build.build_plan import Plan
from pipeline.build.options import DatasetOptions
from pipeline.build.task_results import MapResult
from schemas.errors import InputError

_WARN: Final = 0.05
_REFUSE: Final = 0.5
"""Shares of an input's letters. Proteins are far below the first: X, B, Z, U and O are in the vocabulary."""


def unknown_letter_warnings(
    options: DatasetOptions, planned: Plan, results: Sequence[MapResult]
) -> list[str]:
    """A line for each input of which more than a few percent became `<unk>`.

    Args:
        results: of all map tasks, in the order of the plan's ranges.
    Raises:
        InputError: it is more than half of an input, and --on-invalid was not given.
    """
    letters, unknown = [0] * len(planned.sources), [0] * len(planned.sources)
    for (i, _, _), result in zip(planned.ranges, results, strict=True):
        letters[i] += result.residues
        unknown[i] += result.unknown
    lines = []
    for source, among, count in zip(planned.sources, letters, unknown, strict=True):
        said = f"{count / max(1, among):.0%} of its letters are outside the vocabulary"
        if count > _REFUSE * among and options.on_invalid is None:
            raise InputError(
                f"{said}: qualities, a table, another alphabet? Read it with --on-invalid unk, or without such records with --on-invalid skip",
                source=source.url,
            )
        if count > _WARN * among:
            fate = (
                "their records are left out"
                if options.on_invalid == "skip"
                else "they become <unk>"
            )
            lines.append(f"{source.url}: {said}; {fate}")
    return lines
