"""`thdpack score --mutations`: write a table of mutants with their scores."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import OptionError, ThdpackError
from schemas.text.phrases import plural
from trainer.checkpoints.atomic_write import write
from trainer.checkpoints.new_folder import exists_or_creatable
from trainer.config import ComputeOptions
from trainer.config.score_options import ScoreOptions
from trainer.distributed.agreement import all_gather, run_on_main
from trainer.distributed.topology import Topology
from trainer.inference.load_model import load_weights
from trainer.inference.packed_model import PackedModel
from trainer.inference.prepare import resolved_compute
from trainer.inference.rows import MULTIPLE, RowShape, rows_of
from trainer.inference.sizes import row_sizes
from trainer.model.esm2 import Esm2
from trainer.scores.marginals import (
    LOG_PROBABILITIES,
    collected,
    mutant_scores,
    predict,
    predict_masked,
    wild_type_windows,
)
from trainer.scores.mutation_table import MutationTable, read_mutation_table
from trainer.scores.rank_correlation import correlated
from trainer.scores.wild_type import read_wild_type

COLUMNS: Final = {"wild-type": "wild_type_marginal", "masked": "masked_marginal"}
"""Name of the column with the scores, by --marginals."""


def score_table(options: ScoreOptions, topology: Topology) -> None:
    """Score the mutants of --mutations, and write them to OUT. All ranks must call this.

    Raises:
        OptionError, ThdpackError, ValueError: options, model, table or wild type cannot be used.
    """
    held: list[MutationTable] = []  # on rank 0 only, because tables may be large

    def read() -> tuple[str, set[int] | None]:
        table, wild_type = read_checked(options)
        held.append(table)
        return wild_type, places_to_mask(options, table)

    wild_type, masked = run_on_main(topology, read)
    weights = load_weights(options.model, topology)
    compute = resolved_compute(options, topology)
    model = weights.on_device(compute, topology, fp8=options.precision == "fp8")
    log_p = predictions(options, topology, compute, model, wild_type, masked)
    said = run_on_main(topology, lambda: write_scores(options, held[0], log_p))
    if topology.is_main:
        print(said)


def predictions(
    options: ScoreOptions,
    topology: Topology,
    compute: ComputeOptions,
    model: Esm2,
    wild_type: str,
    masked: Collection[int] | None,
) -> NDArray[np.float32]:
    """Return the log-probabilities at each residue of the wild type, float32[L, 33]. All ranks must
    call this.

    Args:
        compute: compute options, with `auto` resolved.
        masked: places to mask, each in a pass of its own, and to predict; None to predict all in
            one pass, without masks.
    """
    row_tokens, longest, overlap = row_sizes(options, topology)
    windows = wild_type_windows(wild_type, masked, longest=longest, overlap=overlap)
    used = sum(window.tokens.size for window in windows)
    # a short wild type needs no long row
    tokens = min(row_tokens, -(-used // MULTIPLE) * MULTIPLE)
    rows = list(rows_of(windows, RowShape(tokens=tokens, longest=longest)))
    function = predict if masked is None else predict_masked
    packed = PackedModel(model, compute, topology, function)
    mine = []
    for row in rows[topology.rank :: topology.world_size]:
        found = packed.launch(row).wait()
        mine.append((row, found[LOG_PROBABILITIES].numpy().copy()))
    each: list[NDArray[np.float32]] = all_gather(
        topology, collected(mine, len(wild_type), masked=masked is not None)
    )
    # each residue has one owner, and all others have zeros
    total: NDArray[np.float32] = np.sum(each, axis=0, dtype=np.float32)
    return total


def read_checked(options: ScoreOptions) -> tuple[MutationTable, str]:
    """Return the table and its wild type, and check all columns before the model is loaded.

    Raises:
        OptionError: see `_check_out`.
        ThdpackError, ValueError: the table, the wild type or OUT cannot be used.
    """
    table = read_mutation_table(options.mutations)
    given = read_wild_type(options.wild_type) if options.wild_type else ""
    _check_out(options)
    column = COLUMNS[options.marginals]
    if column in table.columns:
        raise ThdpackError(f"{options.mutations}:1: the table has a column {column} already")
    wild_type = given or table.wild_type()
    table.check(wild_type)
    if options.measured or options.measured_column in table.columns:
        table.numbers(options.measured_column)
    return table, wild_type


def _check_out(options: ScoreOptions) -> None:
    """Check that OUT can be written.

    Raises:
        OptionError: OUT exists, and --overwrite is not given; or OUT is the table, a folder, or
            inside of a file.
        ThdpackError: the folder of OUT cannot be created.
    """
    out = Path(options.out)
    if out.exists() and out.samefile(options.mutations):
        raise OptionError(f"--out {out} is the table of --mutations: choose another --out")
    if out.is_dir():
        raise OptionError(
            f"--out {out} is a folder: with --mutations, OUT is the CSV file to write"
        )
    if out.exists() and not options.overwrite:
        raise OptionError(
            f"--out {out} exists: choose another --out, or replace the file with --overwrite"
        )
    if out.parent.is_file():
        raise OptionError(f"--out {out} is inside of a file: choose another --out")
    exists_or_creatable(out.parent)


def places_to_mask(options: ScoreOptions, table: MutationTable) -> set[int] | None:
    """Return the places of all mutations; None if nothing is to be masked."""
    if options.marginals == "wild-type":
        return None
    return {place for mutant in table.mutants for _, place, _ in mutant}


def write_scores(options: ScoreOptions, table: MutationTable, log_p: NDArray[np.float32]) -> str:
    """Write the table with the scores. Return the line to print.

    Args:
        log_p: see `predictions`.
    """
    scores = mutant_scores(log_p, table.mutants)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*table.columns, COLUMNS[options.marginals]])
    for row, score in zip(table.rows, scores.tolist(), strict=True):
        writer.writerow([*row, repr(score)])
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    write(out, text.getvalue())
    said = f"wrote scores of {plural(len(table.rows), 'mutant')} to {out}"
    measured = options.measured_column
    if measured not in table.columns:
        return said
    return f"{said} · {correlation(table, scores, measured)}"


def correlation(table: MutationTable, scores: NDArray[np.float64], measured: str) -> str:
    """Return Spearman's correlation of scores with a column, in words."""
    rho, count = correlated(scores, table.numbers(measured))
    value = "no Spearman correlation" if math.isnan(rho) else f"Spearman {rho:.4f}"
    needs = ", which needs different values" if math.isnan(rho) else ""
    return f"{value} with {measured} of {plural(count, 'measured mutant')}{needs}"
