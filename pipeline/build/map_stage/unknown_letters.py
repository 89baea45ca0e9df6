"""Warn of inputs with over 5 % of letters outside the vocabulary. Refuse inputs with over 50 %,
unless --on-invalid is given.

A file of base qualities, or a table, may parse as FASTA but is useless for training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipeline.build.build_plan import Plan
from pipeline.build.options import DatasetOptions
from pipeline.build.task_results import MapResult
from pipeline.inputs.named.ignore import with_ignore
from schemas.errors import InputError

_WARN_SHARE: Final = 0.05
"""Share of unknown letters above which the build warns. Proteins have far fewer unknown letters,
because X, B, Z, U and O are in the vocabulary."""
_REFUSE_SHARE: Final = 0.5


def unknown_letter_warnings(
    options: DatasetOptions, planned: Plan, results: Sequence[MapResult]
) -> list[str]:
    """Return a line for each input that has more than 5 % of its letters outside the vocabulary.

    Args:
        results: results of all map tasks, in the order of the plan's ranges.
    Raises:
        InputError: most of an input's letters are unknown, and --on-invalid was not given.
    """
    letters, unknown = [0] * len(planned.sources), [0] * len(planned.sources)
    for (i, _, _), result in zip(planned.ranges, results, strict=True):
        letters[i] += result.residues
        unknown[i] += result.unknown
    lines = []
    for source, total, count in zip(planned.sources, letters, unknown, strict=True):
        share = f"{count / max(1, total):.0%} of its letters are outside the vocabulary"
        if count > _REFUSE_SHARE * total and options.on_invalid is None:
            refusal = InputError(
                f"{share}: does the file hold qualities, a table, or another alphabet? To read the "
                "file anyway, give --on-invalid unk; to skip records with such letters, give "
                "--on-invalid skip",
                source=source.url,
            )
            raise with_ignore(refusal, source.url, found=source.found)
        if count > _WARN_SHARE * total:
            fate = (
                "their records are left out"
                if options.on_invalid == "skip"
                else "they become <unk>"
            )
            lines.append(f"{source.url}: {share}; {fate}")
    return lines
