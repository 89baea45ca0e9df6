"""Options of `thdpack score`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import tyro

from schemas.text.option_checks import check_local, flag
from trainer.config.inference_options import FILE_ENDINGS, InferenceOptions, parse

DEFAULT_MEASURED: Final = "DMS_score"
"""Default of --measured: ProteinGym's column."""
_LOCAL_FILE: Final = "use a local file"
_OF_MUTATIONS: Final = ("wild_type", "measured", "overwrite")
_OF_DATA: Final = ("generation", "cache_dir", "sequence_column", "id_column")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreOptions(InferenceOptions):
    """Options of `thdpack score`."""

    data: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="DATA")] = ()
    """A dataset that `thdpack preprocess` wrote (folder or URL), or FASTA files or tables (Parquet,
    Arrow, CSV, TSV). Omit DATA with --mutations."""
    out: Annotated[str, tyro.conf.arg(metavar="OUT")]
    """Folder to write to. If it holds an interrupted run of the same command, that run continues.
    With --mutations, the CSV file to write; see --overwrite."""
    masked: bool = False
    """Compute the exact pseudo-log-likelihood instead: each residue is masked in turn, in a pass of
    its own. The cost is one pass for each residue. Without this option, one pass over each record
    scores all its residues, and nothing is masked."""
    contacts: bool = False
    """Write contact maps instead of scores: one file with a float32 array [L, L] for each record,
    by the categorical Jacobian. The cost is 20 passes for each residue. Records that are longer
    than --max-seq-len get no file."""
    mutations: Annotated[str, tyro.conf.arg(metavar="TABLE")] = ""
    """CSV file of mutants to score, with ProteinGym's columns: mutant (such as A42G, or A42G:L50P,
    where 42 and 50 are counted from 1), and mutated_sequence, unless --wild-type is given. OUT gets
    the columns of the table, and one column with the scores."""
    wild_type: Annotated[str, tyro.conf.arg(metavar="FASTA|SEQUENCE")] = ""
    """Wild type of the mutants: a FASTA file of one record, or the residues themselves. Default:
    the sequence that undoing the mutations in mutated_sequence gives."""
    marginals: Literal["wild-type", "masked"] = "wild-type"
    """Score of a mutant: the sum over its mutations of log p(new letter) - log p(wild-type letter).
    wild-type: p comes from one pass over the wild type. masked: p comes from a pass in which the
    place of the mutation is masked; the cost is one pass for each place."""
    measured: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = ""
    """Column of the table with measured values. The command prints Spearman's rank correlation of
    the scores with these values. Default: DMS_score, if the table has it."""
    overwrite: bool = False
    """Replace the CSV file OUT of --mutations, if it exists."""

    @property
    def measured_column(self) -> str:
        """Name of the column with measured values. Without --measured, the table may lack it."""
        return self.measured or DEFAULT_MEASURED

    def __post_init__(self) -> None:
        InferenceOptions.__post_init__(self)
        if not self.mutations:
            self.check_out()
            self._check_data()
            return
        check_local("--out", self.out, _LOCAL_FILE)
        out = Path(self.out)
        ending = out.suffix.lower()
        if ending != ".csv" and ending in FILE_ENDINGS:
            raise ValueError(
                f"--out is {out}, but with --mutations, OUT is a CSV file: choose a name that ends "
                f"with .csv, such as {out.with_suffix('.csv')}"
            )
        check_local("--mutations", self.mutations, _LOCAL_FILE)
        if self.data:
            raise ValueError(
                f"--mutations scores the mutants of a table: remove DATA ({' '.join(self.data)})"
            )
        for name in ("masked", "contacts"):
            if getattr(self, name):
                remedy = "use --marginals masked" if name == "masked" else "use two commands"
                raise ValueError(
                    f"--{name} is for DATA, and cannot be used with --mutations: {remedy}"
                )
        for name in _OF_DATA:
            if getattr(self, name):
                raise ValueError(f"{flag(name)} is for DATA, and cannot be used with --mutations")
        if self.format != "parquet":
            raise ValueError("--format is for DATA: with --mutations, OUT is a CSV file")

    def _check_data(self) -> None:
        """Check the options of a command without --mutations.

        Raises:
            ValueError: DATA is missing, or options do not go together.
        """
        for name in _OF_MUTATIONS:
            if getattr(self, name):
                raise ValueError(f"{flag(name)} needs --mutations TABLE")
        if self.marginals != "wild-type":
            raise ValueError(
                "--marginals needs --mutations TABLE: to mask residues of DATA, use --masked"
            )
        if not self.data:
            raise ValueError(
                "DATA is missing: give a dataset or FASTA files, or a table with --mutations"
            )
        if self.masked and self.contacts:
            raise ValueError("--masked and --contacts cannot be used together: use two commands")
        if self.contacts and self.format != "parquet":
            raise ValueError("--format is for scores: --contacts writes .npy files")


def parse_score(words: Sequence[str]) -> ScoreOptions:
    """Return the options of `thdpack score`; see `parse`."""
    return parse(
        words,
        ScoreOptions,
        "thdpack score",
        "Score sequences or mutants with a trained model.\n\n"
        "Example: thdpack score runs/esm2-8m proteins.fasta --out scores\n\n"
        "Example: thdpack score runs/esm2-8m --mutations gfp.csv --out gfp-scores.csv",
    )
