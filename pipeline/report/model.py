"""The data model of a report: plain numbers and names.

docs/reference/statistics.md describes its JSON.

Names and ids come from files and may hold anything, control characters and `<script>` included.
Every renderer escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

SCHEMA: Final = 1
"""Version of the JSON. It increases when a key is removed or changes its meaning, not for a new
key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """Histogram whose bins may differ in width.

    edges: B + 1 rising numbers
    counts: B integers; counts[i] values v have edges[i] ≤ v < edges[i + 1]
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Options of the dataset, or of the build that is predicted for raw FASTA.

    capacity, max_seq_len: in tokens
    long: treatment of records that exceed max_seq_len: truncate, split or drop
    max_seqs: largest number of sequences in a bucket
    """

    vocabulary: str
    capacity: int
    max_seq_len: int
    long: str
    min_residues: int
    on_invalid: str
    dedup: str
    valid_fraction: float
    seed: int
    max_seqs: int
    length_multiple: int
    packer: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFlow:
    """One input and the fate of its records.

    bytes: as stored
    by_status: records of each of `schemas.records.Status`, zeros included
    """

    name: str
    bytes: int
    records: int
    residues: int
    by_status: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Residues of each input record, before cropping; records that were left out count too.

    percentiles: by p in PERCENTILES, the smallest length that at least p % do not exceed
    histogram: residues; bins of equal width, except the last, which holds the long tail
    crop: residues that fit into max_seq_len
    cropped: number of kept records that are longer
    residues_cropped: residues that cropping keeps out of the buckets
    """

    records: int
    shortest: int
    longest: int
    mean: float
    percentiles: Mapping[str, int]
    histogram: Distribution
    crop: int
    cropped: int
    residues_cropped: int


PERCENTILES: Final = (1, 5, 25, 50, 75, 95, 99)


@dataclass(frozen=True, kw_only=True, slots=True)
class LetterCount:
    """Frequency of a letter among the residues.

    kind: standard (the twenty), rare (others of the vocabulary) or unknown (`<unk>`, all others)
    share: of all residues counted
    background: share in Swiss-Prot; None if Swiss-Prot does not have the letter
    """

    letter: str
    kind: Literal["standard", "rare", "unknown"]
    count: int
    share: float
    background: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """Residue letters, the standard ones first, by falling background.

    over: the residues counted: those in `buckets`, or all of the `input`
    unknown_records, unknown_residues: over all input records
    """

    over: Literal["buckets", "input"]
    letters: tuple[LetterCount, ...]
    background_source: str
    unknown_records: int
    unknown_residues: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitReport:
    """Contents of a split; all numbers of an empty split are 0.

    bytes: of its shards
    fill: share of bucket tokens that are real
    spread: coefficient of variation over buckets of Σ length², the cost of attention
    peak: largest Σ length² of a bucket, divided by the mean
    fill_counts: buckets by fill in percent
    cost_counts: buckets by Σ length²
    sequences_counts: buckets by their number of sequences
    """

    name: str
    shards: int
    bytes: int
    buckets: int
    sequences: int
    tokens: int
    fill: float
    spread: float
    peak: float
    seqs_max: int
    fill_counts: Distribution
    cost_counts: Distribution
    sequences_counts: Distribution


@dataclass(frozen=True, kw_only=True, slots=True)
class Waste:
    """Cost of one way of batching exactly these sequences, both splits together.

    name: bshd, sorted, next-fit or packed; label: the same for people
    batches: number of rows (bshd), batches (sorted) or buckets
    places: tokens computed on, padding included
    waste: share of places that is padding
    spread, peak: of Σ length² over batches, with padded lengths where rows are padded
    cost_counts: histogram of Σ length²; None for bshd
    predicted: the numbers are a forecast (the buckets of raw FASTA); all others are exact
    """

    name: str
    label: str
    batches: int
    places: int
    waste: float
    spread: float
    peak: float
    cost_counts: Distribution | None
    predicted: bool

    @property
    def title(self) -> str:
        """Label with a capital letter."""
        return self.label[:1].upper() + self.label[1:]


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetRow:
    """One model at one precision.

    tokens_per_second: unpadded, on one GPU
    run_tokens: steps × tokens per step of the preset
    epochs: run_tokens / train tokens
    epoch_gpu_hours, run_gpu_hours: assume that several GPUs are as fast as one each
    source: the measurement of tokens_per_second
    """

    preset: str
    precision: str
    tokens_per_second: float
    run_tokens: int
    epochs: float
    epoch_gpu_hours: float
    run_gpu_hours: float
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Cost of training on the train split. tokens: of one epoch; there are no rows if it is 0."""

    tokens: int
    gpu: str
    rows: tuple[BudgetRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordNote:
    """One notable record. times: how often it occurs, its left-out duplicates included."""

    ordinal: int
    id: str
    source: str
    residues: int
    status: str
    times: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DuplicateFlow:
    """Duplicates in one input whose first copy is in the input `original`, often the same one."""

    source: str
    original: str
    records: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Predicted result of `thdpack preprocess`. bytes: of shards and records/ on disk."""

    shards: int
    buckets: int
    fill: float
    slots: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Statistics of a dataset or of raw FASTA.

    name: as given on the command line
    manifest_digest, build, parent, generation, slots: None for FASTA
    cropped_copies: kept records that equal an earlier one once both are truncated
    residues_in: of all records
    residues_kept, tokens: in the buckets of both splits; predicted for FASTA
    longest: at most TOP, by falling residues, then by ordinal
    repeated: at most TOP that occur twice or more, by falling times, then by ordinal
    prediction: None for a dataset; for FASTA, `splits` is a prediction too, but for its sequences
      and tokens
    """

    kind: Literal["dataset", "fasta"]
    name: str
    thdpack: str
    manifest_digest: str | None = None
    build: str | None = None
    parent: str | None = None
    generation: int | None = None
    slots: int | None = None
    settings: Settings
    records: int
    by_status: Mapping[str, int]
    inputs: tuple[InputFlow, ...]
    cropped_copies: int
    residues_in: int
    residues_kept: int
    tokens: int
    lengths: Lengths
    composition: Composition
    splits: tuple[SplitReport, ...]
    waste: tuple[Waste, ...]
    budget: Budget
    longest: tuple[RecordNote, ...]
    repeated: tuple[RecordNote, ...]
    duplicates: tuple[DuplicateFlow, ...]
    prediction: Prediction | None
    schema: int = SCHEMA


TOP: Final = 10
"""Largest number of records in `longest` and in `repeated`."""
