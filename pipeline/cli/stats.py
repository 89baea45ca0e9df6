"""`thdpack stats`: report on a dataset or raw sequences."""

from __future__ import annotations

from typing import Final

from pipeline.build.options import PreprocessOptions
from pipeline.cli.arguments import UsageError
from pipeline.cli.options.report_options import StatsOptions
from pipeline.report.command import Outputs, is_dataset, serve, stats
from pipeline.report.command import UsageError as MixedInputsError
from schemas.errors import InputError
from schemas.text.generation import generation_of_each
from schemas.text.option_checks import flag

_LAST_PORT: Final = 65_535
_REMEDY: Final = (
    "stats reads FASTA, and .csv, .tsv and Parquet tables with the columns id and sequence"
)
"""Advice in place of options of preprocess that stats lacks."""


def run_stats(options: StatsOptions) -> int:
    """Print or write a report, and return an exit code.

    Raises:
        ThdpackError: an input or a dataset cannot be read, or a file cannot be written.
        UsageError: no input is named, or the inputs cannot be compared.
    """
    if not options.inputs:
        taken = f" (--json took {options.json} as its output file: put --json last, or name a file)"
        hint = taken if options.json not in (None, "-") else ""
        raise UsageError(f"name a dataset, two datasets to compare, or sequence files{hint}")
    given = {
        name: value
        for name in ("capacity", "max_seq_len", "long", "ignore")
        if (value := getattr(options, name)) not in (None, ())
    }
    if given and all(is_dataset(name) for name in options.inputs):
        words = " and ".join(flag(name) for name in given)
        are = "is" if len(given) == 1 else "are"
        raise UsageError(
            f"{words} {are} for raw sequences only: a dataset keeps its build's values"
        )
    if options.read_tokens and not any(is_dataset(name) for name in options.inputs):
        raise UsageError("--read-tokens reads the shards of a dataset, but no input is a dataset")
    if options.serve or options.port is not None or options.open:
        return _serve(options)
    datasets = sum(map(is_dataset, options.inputs))
    if options.generation and not datasets:
        raise UsageError("--generation is for datasets, but no input is a dataset")
    try:
        generations = generation_of_each(options.generation, datasets, name="--generation")
        preprocess = PreprocessOptions(
            inputs=options.inputs,
            out="",
            **given,
            allow_nucleotides=True,
            allow_alignment=True,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    outputs = Outputs(json=options.json, csv=options.csv, html=options.html)
    try:
        stats(
            preprocess,
            outputs,
            against=options.against,
            read_tokens=options.read_tokens,
            generations=generations,
        )
    except MixedInputsError as error:
        raise UsageError(str(error)) from error
    except InputError as error:
        if not error.remedy:
            raise
        raise error.changed(remedy=_REMEDY) from error
    return 0


def _serve(options: StatsOptions) -> int:
    """Serve the report of one dataset until Ctrl-C.

    Raises:
        UsageError: --serve is missing, or the input or another option does not fit it.
        OptionError: the port is busy, or a package is missing.
        KeyboardInterrupt: the user pressed Ctrl-C.
    """
    if not options.serve:
        raise UsageError(f"{'--open' if options.port is None else '--port'} needs --serve")
    refused = ("json", "csv", "html", "against", "read_tokens", "generation")
    if given := [name for name in refused if getattr(options, name) not in (None, (), False)]:
        words = " and ".join(map(flag, given))
        raise UsageError(f"--serve shows the latest report of a dataset: leave out {words}")
    if len(options.inputs) != 1 or not is_dataset(options.inputs[0]):
        raise UsageError(
            "--serve needs one dataset, or one folder in which a build is running: name it, such "
            "as thdpack stats data/uniref50 --serve"
        )
    port = options.port or 0
    if not 0 <= port <= _LAST_PORT:
        raise UsageError(f"--port is {port}, expected 0 to {_LAST_PORT:,}")
    serve(options.inputs[0], port=port, open_browser=options.open)
    return 0
