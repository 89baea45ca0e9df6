"""`--evaluate NAME=FILE` of `thdpack train`: score a small set at each validation.

| file | result |
|---|---|
| mutation table (a name that ends with .csv) | Spearman of wild-type marginals with DMS_score |
| FASTA | perplexity of all residues, from one pass in which nothing is masked |

The numbers are those of `thdpack score` with the same --max-seq-len: a run uses its dataset's. The
model only runs forward, so the training does not change.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.storage.read_manifest import read_manifest
from schemas.errors import InputError, ThdpackError
from schemas.manifest import Manifest
from schemas.text.phrases import plural
from trainer.config.checks import named_files
from trainer.config.score_options import DEFAULT_MEASURED
from trainer.distributed.agreement import run_on_main
from trainer.distributed.topology import Topology
from trainer.feed import RowCopier
from trainer.inference.open_data import build_dataset
from trainer.inference.rows import PackedRow, RowShape, rows_of
from trainer.inference.sizes import default_overlap
from trainer.inference.units import Units
from trainer.inference.windows import Window
from trainer.model.esm2 import VOCABULARY, Esm2
from trainer.scores.likelihood import log_probabilities
from trainer.scores.marginals import collected, mutant_scores, wild_type_windows
from trainer.scores.mutation_table import MutationTable, Substitution, read_mutation_table
from trainer.scores.rank_correlation import correlated
from trainer.validate import perplexity

TABLE_ENDING: Final = ".csv"
_CONVERT: Final = "convert the file to FASTA of proteins first"


@dataclass(frozen=True, kw_only=True, slots=True)
class Assay:
    """Mutants with measured values.

    residues: number of residues of the wild type.
    measured: float64[N], NaN where nothing was measured.
    """

    residues: int
    mutants: Sequence[Sequence[Substitution]]
    measured: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """A set to score. It is the same on all ranks.

    windows: windows to run the model on: of the wild type, or of all sequences.
    assay: the mutants; None for FASTA.
    """

    name: str
    windows: Sequence[Window]
    assay: Assay | None

    @property
    def residues(self) -> int:
        """Number of residues to score."""
        return sum(window.own_end - window.own_begin for window in self.windows)

    def description(self) -> str:
        """Return name and size, in words."""
        size = (
            plural(len(self.assay.mutants), "mutant")
            if self.assay
            else plural(self.residues, "residue")
        )
        return f"{self.name} ({size})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated:
    """Result of an evaluation.

    values: results by name, for metrics.jsonl: spearman and mutants, or loss, perplexity and
        residues. A correlation that does not exist is NaN.
    text: the results in words.
    """

    values: dict[str, float | int]
    text: str


def open_evaluations(
    files: Sequence[str], manifest: Manifest, topology: Topology
) -> list[Evaluation]:
    """Read and check the files of --evaluate. All ranks must call this; only rank 0 reads.

    Args:
        files: values of --evaluate.
        manifest: manifest of the training data. Sequences are cut into windows of its max_seq_len.
    Raises:
        ThdpackError: a file cannot be used. The message names the option, the file and the line.
    """
    longest = manifest.max_seq_len
    overlap = default_overlap(longest)

    def opened() -> list[Evaluation]:
        found = []
        for name, path in named_files(files).items():
            try:
                is_table = path.lower().endswith(TABLE_ENDING)
                read = _assay if is_table else _sequences
                found.append(read(name, path, longest, overlap))
            except ThdpackError as error:
                raise ThdpackError(f"--evaluate {name}: {error}") from error
        return found

    if not files:
        return []
    evaluations: list[Evaluation] = run_on_main(topology, opened)
    return evaluations


def _assay(name: str, path: str, longest: int, overlap: int) -> Evaluation:
    table: MutationTable = read_mutation_table(path)
    wild_type = table.wild_type()
    measured = table.numbers(DEFAULT_MEASURED)
    if np.unique(measured[np.isfinite(measured)]).size < 2:
        raise InputError(
            f"{DEFAULT_MEASURED} has fewer than two different values: there is no rank correlation",
            source=path,
        )
    windows = wild_type_windows(wild_type, None, longest=longest, overlap=overlap)
    assay = Assay(residues=len(wild_type), mutants=table.mutants, measured=measured)
    return Evaluation(name=name, windows=windows, assay=assay)


def _sequences(name: str, path: str, longest: int, overlap: int) -> Evaluation:
    if not Path(path).is_file():
        raise InputError("there is no such FASTA file", source=path)
    with tempfile.TemporaryDirectory(prefix="thdpack-evaluate-") as folder:
        dataset = build_dataset([path], Path(folder), quiet=True, options=(), remedy=_CONVERT)
        units = Units(dataset, read_manifest(dataset), buckets=1)
        windows = [
            window
            for unit in units.all
            for window in units.windows(unit, longest=longest, overlap=overlap)
        ]
        units.close()
    if not windows:
        raise InputError("no record can be scored", source=path)
    # in the order of the file
    windows.sort(key=lambda window: (window.record, window.start + window.own_begin))
    return Evaluation(name=name, windows=windows, assay=None)


@torch.no_grad()
def evaluate(
    model: Esm2,
    evaluation: Evaluation,
    manifest: Manifest,
    topology: Topology,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Evaluated:
    """Run an evaluation. All ranks must call this. Ranks take turns, as in `validate`.

    Args:
        manifest: manifest of the training data. Rows have the size of its buckets.
    """
    shape = RowShape(tokens=manifest.capacity, longest=manifest.max_seq_len)
    rows = list(rows_of(evaluation.windows, shape))
    per_token = VOCABULARY if evaluation.assay else 1
    values = torch.zeros(len(rows), shape.tokens, per_token, device=topology.device)
    copier = RowCopier(topology.device)
    for first in range(0, len(rows), topology.data_ranks):
        # with FSDP2, all ranks must run the model equally often
        number = min(first + topology.data_rank, len(rows) - 1)
        copier.wait()
        row = copier.copy(rows[number].bucket, np.zeros(1, dtype=np.int64))
        ids_T = row.input_ids.int()
        with autocast():
            logits = model(ids_T, row.sequences)
        found = log_probabilities(logits)
        if not evaluation.assay:
            found = found.gather(1, topology.slices.own(ids_T).long()[:, None])
        if number == first + topology.data_rank:
            topology.slices.own(values[number]).copy_(found)
    # each value comes from one rank, and the others add zeros
    return _result(evaluation, rows, topology.sum_(values))


def _result(evaluation: Evaluation, rows: Sequence[PackedRow], values: Tensor) -> Evaluated:
    """Return the results.

    Args:
        values: float32[rows, T, 33] log-probabilities, or float32[rows, T, 1] those of the residues
            themselves.
    """
    log_p = values.cpu().numpy()
    if evaluation.assay:
        assay = evaluation.assay
        table = collected(zip(rows, log_p, strict=True), assay.residues, masked=False)
        rho, count = correlated(mutant_scores(table, assay.mutants), assay.measured)
        said = "no Spearman correlation" if math.isnan(rho) else f"Spearman {rho:.4f}"
        return Evaluated(
            values={"spearman": rho, "mutants": count},
            text=f"{said} with {DEFAULT_MEASURED} of {plural(count, 'mutant')}",
        )
    total = math.fsum(
        number
        for row, row_log_p in zip(rows, log_p, strict=True)
        for begin, end in row.owned[: 2 * len(row.windows)].reshape(-1, 2).tolist()
        for number in row_log_p[begin:end, 0].tolist()
    )
    loss = -total / evaluation.residues
    return Evaluated(
        values={"loss": loss, "perplexity": perplexity(loss), "residues": evaluation.residues},
        text=f"perplexity {perplexity(loss):,.3f} of {plural(evaluation.residues, 'residue')}",
    )
