"""The data model of a report: plain numbers and names.

docs/reference/statistics.md describes its JSON.

Names and ids come from files and may contain any characters, even control characters and
`<script>`. Every renderer escapes names and ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pipeline.report.model_estimates import Budget, Prediction

SCHEMA: Final = 1
"""Version of the JSON. It increases when a key is removed or changes its meaning, but not when a
key is added."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """Histogram whose bins may differ in width.

    edges: float[B + 1], edges of the bins in ascending order
    counts: int[B]; counts[i] is the number of values v with edges[i] ≤ v < edges[i + 1]
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Options of the dataset, or of the build that is predicted for raw FASTA.

    capacity: number of tokens in a bucket
    max_seq_len: largest number of tokens in a sequence
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
    """One input, with the number of its records by status.

    bytes: size of the stored, possibly compressed, file
    records, residues: number of records and of residues in the input
    by_status: number of records of each `schemas.records.Status`, zeros included
    """

    name: str
    bytes: int
    records: int
    residues: int
    by_status: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Statistics of the lengths of input records, in residues before cropping.

    All records are counted, also those that the build left out.

    records: number of records
    percentiles: for each p in PERCENTILES, the smallest length such that at least p % of records
      are not longer
    histogram: number of records by length; bins have equal widths, except the last, which holds
      all longer records
    crop: largest number of residues that fit into max_seq_len
    cropped: number of kept records with more residues than `crop`
    residues_cropped: number of residues that cropping removes from kept records
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

    kind: standard (the twenty amino acids), rare (other letters of the vocabulary) or unknown
      (`<unk>`, which stands for all letters outside the vocabulary)
    count: number of residues with this letter
    share: count divided by the number of all counted residues
    background: share in Swiss-Prot; None if Swiss-Prot does not have the letter
    """

    letter: str
    kind: Literal["standard", "rare", "unknown"]
    count: int
    share: float
    background: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """Frequencies of letters: the standard letters, then the rare ones, then `<unk>`.

    over: "buckets" if residues in buckets were counted, "input" if all input residues were
    letters: within each kind, in descending order of `background`
    unknown_records: number of input records that contain unknown letters
    unknown_residues: number of unknown letters in all input records
    """

    over: Literal["buckets", "input"]
    letters: tuple[LetterCount, ...]
    background_source: str
    unknown_records: int
    unknown_residues: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitReport:
    """Contents of a split; all numbers of an empty split are 0.

    shards, buckets, sequences: number of shards, buckets and sequences
    bytes: size of all shards
    tokens: number of real tokens, <cls> and <eos> included
    fill: share of bucket tokens that are real
    spread: coefficient of variation over buckets of Σ length², the cost of attention
    peak: largest Σ length² of a bucket, divided by the mean
    seqs_max: largest number of sequences in a bucket
    fill_counts: number of buckets by fill in percent
    cost_counts: number of buckets by Σ length²
    sequences_counts: number of buckets by number of sequences
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
    """Cost of batching the sequences of both splits in one way.

    name: bshd, sorted, next-fit or packed (see `gather/waste.py`)
    label: description of the way, for display
    batches: number of rows (bshd), of batches (sorted) or of buckets (next-fit, packed)
    places: number of tokens that a GPU would compute, padding included
    waste: share of `places` that is padding
    spread: coefficient of variation of Σ length² over batches; padded lengths count, not real ones
    peak: largest Σ length² of a batch, divided by the mean over batches
    cost_counts: number of batches by Σ length²; None for bshd
    predicted: whether the numbers are a forecast, as for the buckets of raw FASTA
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
        """Label that begins with a capital letter."""
        return self.label[:1].upper() + self.label[1:]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordNote:
    """One record of a list in the report.

    ordinal: position of the record in the input order
    source: name of the input
    residues: number of residues before cropping
    times: number of records with this sequence: the record itself and its left-out duplicates
    """

    ordinal: int
    id: str
    source: str
    residues: int
    status: str
    times: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DuplicateFlow:
    """Number of duplicates in the input `source` whose first copy is in the input `original`.

    `source` and `original` may be the same input.
    """

    source: str
    original: str
    records: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Statistics of a dataset or of raw FASTA.

    name: name of the dataset or of the inputs, as given on the command line
    manifest_digest, build, parent, generation, slots: values of the manifest; None for FASTA
    records: number of input records
    by_status: number of records of each `schemas.records.Status`
    cropped_copies: number of kept records that equal an earlier record once both are truncated
    residues_in: number of residues in all records
    residues_kept, tokens: number of residues and of tokens in the buckets of both splits; predicted
      for FASTA
    longest: at most TOP records, in descending order of residues, then in order of ordinal
    repeated: at most TOP records that occur twice or more, in descending order of `times`, then in
      order of ordinal
    prediction: predicted size of a build; None for a dataset. For FASTA, the numbers in `splits`
      are predictions, too, except that the numbers of sequences and tokens are exact
    warnings: sentences about inputs that `thdpack preprocess` would refuse; none for a dataset
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
    warnings: tuple[str, ...] = ()
    schema: int = SCHEMA


TOP: Final = 10
"""Largest number of records in `longest` and in `repeated`."""
