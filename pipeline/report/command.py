"""`thdpack stats`: make the report that the arguments request, print it, and write it to files."""

from __future__ import annotations

import glob
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Final

from pipeline.build.options import PreprocessOptions
from pipeline.inputs.file_names import looks_like_sequences
from pipeline.report.comparison import Comparison
from pipeline.report.gather.compare import Side, compare
from pipeline.report.model import Report
from pipeline.storage.hub.address import is_hub
from pipeline.storage.hub.revision import pinned
from pipeline.storage.urls import local_path
from schemas.errors import OptionError
from schemas.manifest import MANIFEST_NAME, WORK
from schemas.text.generation import Generation, generation_of_each
from schemas.text.phrases import install_command

_UNFINISHED: Final = (WORK, "records/*.parquet")
"""Names of files and folders that an interrupted build leaves in its output folder."""


class UsageError(Exception):
    """The inputs on the command line cannot be combined."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs:
    """Files to write. None means no such file.

    If a file is written, the terminal shows only the first lines of the report.

    json: path or URL of a file; `-` replaces the report in the terminal by JSON
    csv: path or URL of a folder
    html: path or URL of a file
    """

    json: str | None
    csv: str | None
    html: str | None


def stats(
    options: PreprocessOptions,
    outputs: Outputs,
    *,
    against: Sequence[str] = (),
    read_tokens: bool = False,
    generations: Sequence[Generation] = (),
) -> None:
    """Make the report of `options.inputs`, write the requested files, then print the report.

    Args:
        against: files whose sequences are looked up in the dataset.
        read_tokens: True to check first that the shards of each dataset agree with its manifest.
        generations: generation of each dataset; see `generation_of_each`.
    Raises:
        UsageError: more than two inputs are given, and at least one of them is a dataset;
            `against` is given without exactly one dataset; or `against` has `mmseqs:-`.
        ThdpackError: an input or a dataset cannot be read, or a file cannot be written.
    """
    if outputs.html is not None:
        _need("jinja2", "--html")
    _refuse_unwritable(outputs)
    options = replace(
        options,
        inputs=tuple(pinned(name) if is_hub_dataset(name) else name for name in options.inputs),
    )
    if read_tokens:
        _recount(options.inputs, generations)
    report = report_of(options, against, generations)
    # write before printing, because printing fails if standard output is a closed pipe
    written = _write_files(report, outputs)
    try:
        _print(report, as_json=outputs.json == "-", whole=not written)
    finally:
        for name in written:
            print(f"wrote {name}", file=sys.stderr)


def serve(dataset: str, *, port: int, open_browser: bool) -> None:
    """Serve the HTML report of a dataset; see `serve_report`."""
    _need("jinja2", "--serve")
    _need("polars", "reading records/")
    from pipeline.report.web.serve import serve_report

    serve_report(dataset, port=port, open_browser=open_browser)


def _refuse_unwritable(outputs: Outputs) -> None:
    """Check the URLs of output files before any other work.

    Raises:
        ThdpackError: an output file cannot be written.
    """
    from pipeline.report.render.output_files import refuse_missing_parent, refuse_unwritable

    json = None if outputs.json == "-" else outputs.json
    for option, name in (("--json", json), ("--csv", outputs.csv), ("--html", outputs.html)):
        if name is not None:
            refuse_unwritable(option, name, folder=option == "--csv")
            refuse_missing_parent(option, name)


def _write_files(report: Report | Comparison, outputs: Outputs) -> list[str]:
    """Write the requested files. Return their paths or URLs as the user gave them."""
    from pipeline.report.render.export import to_json, write_csv
    from pipeline.report.render.output_files import write_text

    written = []
    if outputs.json not in (None, "-"):
        write_text(str(outputs.json), to_json(report))
        written.append(str(outputs.json))
    if outputs.csv is not None:
        write_csv(report, outputs.csv)
        written.append(outputs.csv)
    if outputs.html is not None:
        from pipeline.report.html.page import page

        write_text(outputs.html, page(report))
        written.append(outputs.html)
    return written


def report_of(
    options: PreprocessOptions,
    against: Sequence[str] = (),
    generations: Sequence[Generation] = (),
) -> Report | Comparison:
    """Return one report of a dataset or of all sequence files, or a comparison of two inputs.

    Two inputs are compared if at least one input is a dataset.

    Raises:
        UsageError, ThdpackError: see `stats`.
    """
    datasets = [is_dataset(name) for name in options.inputs]
    if against and datasets != [True]:
        raise UsageError(
            "--against looks up the sequences of a file in one dataset: name a dataset before it, "
            "such as thdpack stats data/uniref50 --against test.fasta"
        )
    if "mmseqs:-" in against:
        raise UsageError("--against mmseqs:- reads standard input twice: name a file")
    if any(datasets) and len(datasets) > 2:
        raise UsageError(
            "name one dataset for a report, or two inputs to compare them; more than two inputs "
            "must all be sequence files"
        )
    each = iter(generation_of_each(generations, sum(datasets)))
    if len(datasets) == 2 and any(datasets):
        a, b = (
            _dataset_side(name, next(each)) if dataset else _sequences_side(options, (name,))
            for name, dataset in zip(options.inputs, datasets, strict=True)
        )
        return compare(a, b)
    if any(datasets):
        return _dataset_report(options.inputs[0], next(each), against)
    return _sequences_side(options, options.inputs).report


def is_dataset(name: str) -> bool:
    """Return True if an argument names a dataset, False if it names sequences.

    A URL that looks like a sequence file or a glob names sequences; any other URL names a dataset.
    """
    if name == "-":
        return False
    folder = local_path(name)
    if folder is None:
        return not looks_like_sequences(name) and not glob.has_magic(name)
    return (folder / MANIFEST_NAME).exists() or any(
        next(folder.glob(pattern), None) is not None for pattern in _UNFINISHED
    )


def is_hub_dataset(name: str) -> bool:
    """Return True if an argument names a dataset on the Hugging Face Hub."""
    return is_hub(name) and is_dataset(name)


def _recount(names: Sequence[str], generations: Sequence[Generation]) -> None:
    """Check the shards of every dataset among the arguments."""
    from pipeline.report.gather.recount import recount
    from pipeline.storage.read_manifest import read_manifest

    datasets = [name for name in names if is_dataset(name)]
    each = generation_of_each(generations, len(datasets))
    for name, generation in zip(datasets, each, strict=True):
        recount(name, read_manifest(name, generation))


def _dataset_report(name: str, generation: Generation, against: Sequence[str]) -> Report:
    _need("polars", "reading records/")
    if not against:
        from pipeline.report.gather.dataset import dataset_report

        return dataset_report(name, generation)
    from pipeline.build.progress.reporter import reporter
    from pipeline.report.gather.against.report_against import report_against

    with reporter(as_json=False) as progress:
        return report_against(name, generation, against, progress)


def _dataset_side(name: str, generation: Generation) -> Side:
    _need("polars", "reading records/")
    from pipeline.report.gather.dataset import dataset_side

    return dataset_side(name, generation)


def _sequences_side(options: PreprocessOptions, inputs: Sequence[str]) -> Side:
    from pipeline.build.progress.reporter import reporter
    from pipeline.report.gather.fasta import sequences_side

    with reporter(as_json=False) as progress:
        return sequences_side(replace(options, inputs=tuple(inputs)), progress)


def _need(library: str, purpose: str) -> None:
    if find_spec(library) is None:
        raise OptionError(
            f"{purpose} needs {library}, which is not installed: {install_command('report')}"
        )


def _print(report: Report | Comparison, *, as_json: bool, whole: bool) -> None:
    """Print a report, or only its first lines, to standard output.

    Raises:
        BrokenPipeError: the program that reads standard output, such as `head`, has closed the
            pipe.
    """
    if as_json:
        from pipeline.report.render.export import to_json

        sys.stdout.write(to_json(report))
        return
    from rich.console import Console

    from pipeline.report.render.terminal import show

    console = Console()
    # print without rich, which ends the process with code 1 if standard output is a closed pipe
    with console.capture() as text:
        show(report, console, whole=whole)
    sys.stdout.write(text.get())
    sys.stdout.flush()
