"""What a report says: plain numbers and names, the same for every renderer. docs/reference/statistics.md states the JSON.

Names and ids come from files and may hold anything, control characters and `<script>` included: whoever shows them escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

SCHEMA: Final = 1
"""Version of the JSON. New keys leave it as it is; a key that goes or changes its meaning raises it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """Counts of values between edges, which need not be equally far apart.

    edges: B + 1 rising numbers; counts: B integers, counts[i] values v with edges[i] ≤ v < edges[i + 1]
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How sequences are made and packed: the dataset's options; of raw FASTA, what a build with these options would do.

    capacity, max_seq_len: in tokens; long: what becomes of longer records (truncate, split, drop); max_seqs: most sequences in a bucket
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

    bytes: as stored; by_status: records of each of `schemas.records.Status`, zeros included
    """

    name: str
    bytes: int
    records: int
    residues: int
    by_status: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Residues of the records that came in, before cropping, left-out ones included.

    percentiles: of p in PERCENTILES, the smallest length that at least p % of the records do not exceed
    histogram: residues; bins of equal width but for the last, which holds the long tail
    crop: residues that fit into max_seq_len; cropped: kept records that are longer;
    residues_cropped: residues of kept records that are in no bucket because of it
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
    """How often a letter stands among the residues.

    kind: standard (the twenty), rare (others of the vocabulary), unknown (`<unk>`: all others)
    share: of all residues counted; background: its share in Swiss-Prot, None where that names none
    """

    letter: str
    kind: Literal["standard", "rare", "unknown"]
    count: int
    share: float
    background: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """Residue letters, the standard ones first, by falling background.

    over: which residues are counted: `buckets` (those of the dataset's buckets) or `input` (all that came in)
    unknown_records, unknown_residues: over all records that came in
    """

    over: Literal["buckets", "input"]
    letters: tuple[LetterCount, ...]
    background_source: str
    unknown_records: int
    unknown_residues: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitReport:
    """What a split holds; all numbers of an empty split are 0.

    spread: coefficient of variation of Σ length² over buckets; peak: its largest over its mean
    fill_counts: buckets by fill in percent; cost_counts: by Σ length²; sequences_counts: by their number of sequences
    bytes: of its shards
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
    """What one way of batching spends on these very sequences, both splits together.

    name: bshd, sorted, next-fit, packed; label: the same for people
    batches: rows (bshd), batches (sorted) or buckets; places: tokens computed on, padding included
    waste: share of them that is padding
    spread, peak: of Σ length² over batches, padded lengths where there is padding; cost_counts: its histogram, None for bshd
    predicted: the figures are a forecast (raw FASTA, name packed); otherwise they are exact
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
        """The label as the beginning of a line."""
        return self.label[:1].upper() + self.label[1:]


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetRow:
    """One model at one precision.

    tokens_per_second: unpadded, on one GPU; run_tokens: steps × tokens a step of the preset; epochs: run_tokens / train tokens;
    epoch_gpu_hours, run_gpu_hours: on GPUs of the table's kind, as if every one of several ran like one
    source: where tokens_per_second comes from
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
    """What training on the train split takes. tokens: of one epoch; no rows where there are none."""

    tokens: int
    gpu: str
    rows: tuple[BudgetRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordNote:
    """One record worth naming. times: itself and the duplicates that were left out in its favour."""

    ordinal: int
    id: str
    source: str
    residues: int
    status: str
    times: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DuplicateFlow:
    """Duplicates in one input whose first copy is in `original` (an input, often the same one)."""

    source: str
    original: str
    records: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """What `thdpack preprocess` would make of raw FASTA. bytes: of shards and records/ on disk."""

    shards: int
    buckets: int
    fill: float
    slots: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Everything that is shown of a dataset or of raw FASTA.

    name: as the user called it; manifest_digest, build, parent, generation, slots: None for FASTA
    cropped_copies: kept records that are the same as an earlier one once they are truncated
    residues_in: of all records; residues_kept: in buckets (would be, for FASTA); tokens: in buckets, over both splits
    longest: by falling residues, then ordinal; repeated: by falling times, then ordinal, times ≥ 2; at most TOP of each
    prediction: None for a dataset; for FASTA, the splits too are predicted, but for sequences and tokens
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
"""Records in `longest` and in `repeated`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One number of both reports. change: (b − a) / a, None where a is 0 or either is missing."""

    name: str
    a: float | None
    b: float | None
    change: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingChange:
    """An option that differs."""

    name: str
    a: str
    b: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Different sequences, told apart by the exact hash of their tokens before cropping; left-out records included.

    residues_both: their residues, each sequence once
    """

    only_a: int
    only_b: int
    both: int
    residues_both: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two reports side by side. related: what the manifests say: same, child (b was made from a), parent, or none."""

    a: Report
    b: Report
    related: Literal["same", "child", "parent", "none"]
    changes: tuple[Change, ...]
    settings: tuple[SettingChange, ...]
    overlap: Overlap
    kind: Literal["comparison"] = "comparison"
    schema: int = SCHEMA
