"""The data model of a report: plain numbers and names.

docs/reference/statistics.md describes the JSON of a report.

Names and ids come from files and may contain any characters, even control characters and
`<script>`. Every renderer escapes names and ids. Σ length², summed over the sequences of a bucket,
is the bucket's attention cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pipeline.report.distributions import Distribution
from pipeline.report.model_coverage import Coverage
from pipeline.report.model_estimates import Budget, Prediction
from pipeline.report.model_headers import HeaderCounts
from pipeline.report.model_leaks import Exclusion, FileOverlap, SharedValues

SCHEMA: Final = 1
"""Version of the JSON. The version increases when a key is removed or changes its meaning, but not
when a key is added."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Options of a dataset's build. For raw sequences, options of the predicted build.

    capacity: number of tokens in a bucket
    max_seq_len: maximum number of tokens that a sequence may have
    long: treatment of records that exceed max_seq_len: "truncate", "crop", "split" or "drop"
    where: expression of --where; None if the build has none
    max_seqs: maximum number of sequences that a bucket may hold
    """

    vocabulary: str
    capacity: int
    max_seq_len: int
    long: str
    min_residues: int
    on_invalid: str
    where: str | None
    dedup: str
    split: str
    seed: int
    max_seqs: int
    length_multiple: int
    packer: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFlow:
    """Size of one input, and the number of its records by status.

    bytes: size of the stored file, which may be compressed
    records, residues: number of records and number of residues in the input
    by_status: number of records for each `schemas.records.Status`, zeros included
    """

    name: str
    bytes: int
    records: int
    residues: int
    by_status: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Statistics of the lengths of input records, in residues before cropping.

    All records are counted, including the records that the build left out.

    records: number of records
    percentiles: for each p in PERCENTILES, the smallest length L for which at least p % of the
      records have at most L residues
    histogram: number of records by length; bins have equal widths, except the last bin, which holds
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
"""Percentiles of the length in a report."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LetterCount:
    """Frequency of a letter among the residues.

    kind: standard (the twenty amino acids), rare (other letters of the vocabulary) or unknown
      (`<unk>`, which stands for all letters outside the vocabulary)
    count: number of residues with this letter
    share: `count` divided by the number of all counted residues
    background: share of the letter in Swiss-Prot; None if the letter is not in Swiss-Prot
    """

    letter: str
    kind: Literal["standard", "rare", "unknown"]
    count: int
    share: float
    background: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """Frequencies of letters: the standard letters, then the rare ones, then `<unk>`.

    over: "buckets" if the residues in buckets are counted, "input" if all input residues are
      counted
    letters: letters of one kind are in descending order of `background`
    background_source: description of the data from which `background` was counted
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
    """Contents of a split. All numbers of an empty split are 0.

    shards, buckets, sequences: number of shards, of buckets and of sequences
    bytes: total size of the shards
    tokens: number of tokens without padding, <cls> and <eos> included
    fill: `tokens` divided by the number of tokens that the buckets have room for
    spread: coefficient of variation of Σ length² over buckets
    peak: largest Σ length² of a bucket, divided by the mean over buckets
    seqs_max: largest number of sequences in a bucket
    fill_counts: number of buckets by fill; the edges are in percent
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
    """Padding and attention cost of one way of batching the sequences of all splits.

    Σ length² is computed from padded lengths.

    name: bshd, sorted, next-fit or packed (see `gather/waste.py`)
    label: description of the way of batching, for display
    batches: number of rows (bshd), of batches (sorted) or of buckets (next-fit, packed)
    places: number of tokens that a GPU would compute, padding included
    waste: share of `places` that is padding
    spread: coefficient of variation of Σ length² over batches; for packed, over the buckets of the
      train split (of all splits if the train split is empty)
    peak: largest Σ length² of a batch, divided by the mean, over the same batches as `spread`
    cost_counts: number of batches by Σ length²; None for bshd
    predicted: True if the numbers are a forecast, as for the buckets of raw sequences
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
        """The label with a capital first letter."""
        return self.label[:1].upper() + self.label[1:]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordNote:
    """A record in one of the report's lists of records.

    ordinal: position of the record in the input order
    source: name of the input that holds the record
    residues: number of residues before cropping
    times: number of records with this sequence: 1 for the record, plus its left-out duplicates
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
    """Statistics of a dataset or of raw sequences.

    For raw sequences (`kind` is "fasta"), `splits` holds predictions. The predicted numbers of
    bytes are approximate; all other numbers are exact.

    name: name of the dataset or of the inputs, as given on the command line
    thdpack: version of thdpack that made the report
    manifest_digest, build, parent, generation, slots: values of the manifest, or None
    retired: number of records that are listed in retired/; None for raw sequences
    source_release, license: release and licence of the inputs, if the manifest has them
    records, by_status: number of input records, in total and for each `schemas.records.Status`
    cropped_copies: number of kept records whose residues, after truncation, equal those of an
      earlier record
    residues_in: number of residues in all records
    residues_kept, tokens: numbers of residues and of tokens in the buckets of all splits
    longest: the longest records, at most TOP, in descending order of residues; records of equal
      length are in input order
    repeated: the records with the most duplicates, at most TOP, in descending order of `times`;
      records with equal `times` are in input order
    prediction: predicted size of a build; None for a dataset
    warnings: sentences about inputs that `thdpack preprocess` would refuse; empty for a dataset
    headers: counts of records by values from their headers; None for raw sequences
    exclusions: records that `--exclude` left out, by file and kind; empty for raw sequences
    leaks: what splits share (sequences, clusters), for each pair; empty for raw sequences
    against: overlap with each file of `--against`
    coverage: residues that the variants contain; None for most datasets and for raw sequences
    """

    kind: Literal["dataset", "fasta"]
    name: str
    thdpack: str
    manifest_digest: str | None = None
    build: str | None = None
    parent: str | None = None
    generation: int | None = None
    retired: int | None = None
    slots: int | None = None
    source_release: str | None = None
    license: str | None = None
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
    headers: HeaderCounts | None = None
    exclusions: tuple[Exclusion, ...] = ()
    leaks: tuple[SharedValues, ...] = ()
    against: tuple[FileOverlap, ...] = ()
    coverage: Coverage | None = None
    schema: int = SCHEMA


TOP: Final = 10
"""Largest number of records in `longest` and in `repeated`."""
