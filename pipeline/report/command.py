"""`thdpack stats`: make the report that the arguments ask for, and show or write it."""

from __future__ import annotations

import glob
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pipeline.build.options import PreprocessOptions
from pipeline.inputs.file_names import looks_like_sequences
from pipeline.report.comparison import Comparison
from pipeline.report.gather.compare import Side, compare
from pipeline.report.model import Report
from pipeline.storage.urls import local_path
from schemas.errors import ThdpackError
from schemas.manifest import MANIFEST_NAME
from schemas.phrases import install_command

_UNFINISHED: Final = (".build", "records/*.parquet")
"""Names of files and folders that an interrupted build leaves in its output folder."""


class UsageError(Exception):
    """The inputs on the command line cannot be combined."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs:
    """Paths of files to write, besides the report in the terminal; None for files not requested.

    json: path of a file; `-` prints JSON to standard output instead of the report
    csv: path of a folder
    html: path of a file
    """

    json: str | None
    csv: str | None
    html: str | None


def stats(options: PreprocessOptions, outputs: Outputs, *, read_tokens: bool = False) -> None:
    """Make the report of `options.inputs`, then print it and write the requested files.

    Args:
        read_tokens: whether to check first that each dataset's shards agree with its manifest.
    Raises:
        UsageError: more than two inputs are given, and at least one is a dataset.
        ThdpackError: an input or a dataset cannot be read, or a file cannot be written.
    """
    from pipeline.report.render.export import to_json, write_csv, write_text

    if outputs.html is not None:
        _need("jinja2", "--html")
    if read_tokens:
        _recount(options.inputs)
    report = report_of(options)
    if outputs.json == "-":
        sys.stdout.write(to_json(report))
    else:
        _show(report)
    if outputs.json not in (None, "-"):
        write_text(Path(str(outputs.json)), to_json(report))
        _wrote(str(outputs.json))
    if outputs.csv is not None:
        write_csv(report, Path(outputs.csv))
        _wrote(outputs.csv)
    if outputs.html is not None:
        from pipeline.report.html.page import page

        write_text(Path(outputs.html), page(report))
        _wrote(outputs.html)


def _wrote(path: str) -> None:
    """Print on standard error that a file or folder was written."""
    print(f"wrote {path}", file=sys.stderr)


def report_of(options: PreprocessOptions) -> Report | Comparison:
    """Return one report of a dataset or of all sequence files, or a comparison of two inputs.

    Two inputs are compared if at least one of them is a dataset.

    Raises:
        UsageError, ThdpackError: see `stats`.
    """
    datasets = [is_dataset(name) for name in options.inputs]
    if any(datasets) and len(datasets) > 2:
        raise UsageError(
            "name one dataset for a report or two to compare; more than two inputs must all be "
            "sequence files"
        )
    if len(datasets) == 2 and any(datasets):
        a, b = (
            _dataset_side(name) if dataset else _sequences_side(options, (name,))
            for name, dataset in zip(options.inputs, datasets, strict=True)
        )
        return compare(a, b)
    if any(datasets):
        _need("polars", "reading records/")
        from pipeline.report.gather.dataset import dataset_report

        return dataset_report(options.inputs[0])
    return _sequences_side(options, options.inputs).report


def is_dataset(name: str) -> bool:
    """Return whether an argument names a dataset rather than sequences.

    A URL names a dataset unless it looks like a sequence file or a glob.
    """
    if name == "-":
        return False
    folder = local_path(name)
    if folder is None:
        return not looks_like_sequences(name) and not glob.has_magic(name)
    return (folder / MANIFEST_NAME).exists() or any(
        next(folder.glob(pattern), None) is not None for pattern in _UNFINISHED
    )


def _recount(names: Sequence[str]) -> None:
    """Check the shards of every dataset among the arguments."""
    from pipeline.report.gather.recount import recount
    from pipeline.storage.read_manifest import read_manifest

    for name in names:
        if is_dataset(name):
            recount(name, read_manifest(name))


def _dataset_side(name: str) -> Side:
    _need("polars", "reading records/")
    from pipeline.report.gather.dataset import dataset_side

    return dataset_side(name)


def _sequences_side(options: PreprocessOptions, inputs: Sequence[str]) -> Side:
    from pipeline.build.progress import reporter
    from pipeline.report.gather.fasta import sequences_side

    with reporter(as_json=False) as progress:
        return sequences_side(replace(options, inputs=tuple(inputs)), progress)


def _need(library: str, purpose: str) -> None:
    if find_spec(library) is None:
        raise ThdpackError(
            f"{purpose} needs {library}, which is not installed: {install_command('report')}"
        )


def _show(report: Report | Comparison) -> None:
    from rich.console import Console

    from pipeline.report.render.terminal import show

    show(report, Console())
