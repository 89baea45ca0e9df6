"""A synthetic report with hostile names, for tests of the report page that need no dataset."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.report.comparison import Change, Comparison, Overlap, SettingChange
from pipeline.report.model import (
    PERCENTILES,
    Composition,
    DuplicateFlow,
    InputFlow,
    Lengths,
    LetterCount,
    RecordNote,
    Report,
    Settings,
)
from pipeline.report.model_estimates import Prediction
from tests.helpers.reports.made_counts import made_counts
from tests.helpers.reports.made_packing import (
    CAPACITY,
    LONGEST,
    counted,
    made_budget,
    made_split,
    made_waste,
)

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
"""Name of an input file and id of a record. A page that does not escape it would run a script."""
_LETTERS = "LAGVESIKRDTPNQFYMHCW"
_SHARES = (
    9.65,
    8.25,
    7.07,
    6.86,
    6.72,
    6.63,
    5.91,
    5.80,
    5.53,
    5.46,
    5.36,
    4.74,
    4.06,
    3.93,
    3.86,
    2.92,
    2.41,
    2.27,
    1.38,
    1.10,
)


def made_report(
    *,
    records: int = 60_000,
    kind: str = "dataset",
    names: Sequence[str] = ("swissprot.fasta.gz", HOSTILE),
    seed: int = 0,
) -> Report:
    """Return a random report. Numbers that the page shows side by side are consistent."""
    rng = np.random.default_rng(seed)
    residues = np.clip(np.exp(rng.normal(5.72, 0.68, records)), 11, 35_213).astype(np.int64)
    kept = residues[: int(records * 0.92)]
    tokens = np.minimum(kept, LONGEST - 2) + 2
    packed = kind == "dataset"
    splits = tuple(
        made_split(rng, name, part, packed)
        for name, part in (
            ("train", tokens[: int(len(tokens) * 0.99)]),
            ("valid", tokens[int(len(tokens) * 0.99) :]),
        )
    )
    inputs = tuple(
        _input(name, part)
        for name, part in zip(names, np.array_split(residues, len(names)), strict=True)
    )
    return Report(
        kind="dataset" if packed else "fasta",
        name="data/swissprot",
        thdpack="0.1.0",
        manifest_digest="5f0c9a7d11e2b3c4d5e6f708192a3b4c" if packed else None,
        build="9d1c5b7a" if packed else None,
        parent=None,
        generation=1 if packed else None,
        slots=64 if packed else None,
        settings=_settings(),
        records=records,
        by_status={
            status: sum(flow.by_status[status] for flow in inputs) for status in inputs[0].by_status
        },
        inputs=inputs,
        cropped_copies=7,
        residues_in=int(residues.sum()),
        residues_kept=int(tokens.sum() - 2 * len(tokens)),
        tokens=int(tokens.sum()),
        lengths=_lengths(residues, kept),
        composition=_composition(rng, int(tokens.sum())),
        splits=splits,
        waste=made_waste(rng, tokens, packed),
        budget=made_budget(splits[0].tokens),
        longest=tuple(
            RecordNote(
                ordinal=i,
                id=f"P{10000 + i}" if i else HOSTILE,
                source=names[0],
                residues=35_213 - 700 * i,
                status="kept",
                times=1,
            )
            for i in range(10)
        ),
        repeated=tuple(
            RecordNote(
                ordinal=i,
                id=f"Q{20000 + i}",
                source=names[-1],
                residues=120 + i,
                status="kept",
                times=41 - 3 * i,
            )
            for i in range(10)
        ),
        duplicates=(
            DuplicateFlow(
                source=names[-1],
                original=names[0],
                records=sum(flow.by_status["duplicate"] for flow in inputs),
            ),
        ),
        prediction=None
        if packed
        else Prediction(shards=2, buckets=1_200, fill=0.9998, slots=64, bytes=24_000_000),
        **(made_counts(records) if packed else {}),
    )


def made_comparison() -> Comparison:
    """Return a comparison of two reports with different lengths. The second dataset was
    made from the first.
    """
    a, b = made_report(), made_report(records=90_000, seed=1)
    return Comparison(
        a=a,
        b=b,
        related="child",
        changes=tuple(
            Change(name=name, a=x, b=y, change=(y - x) / x if x else None)
            for name, x, y in (
                ("records", a.records, b.records),
                ("tokens", a.tokens, b.tokens),
                ("fill", a.splits[0].fill, b.splits[0].fill),
                ("cropped", 0, 5),
            )
        ),
        settings=(SettingChange(name="packer", a="balanced", b="next-fit"),),
        overlap=Overlap(only_a=4_000, only_b=34_000, both=51_000, residues_both=18_000_000),
    )


def _settings() -> Settings:
    return Settings(
        vocabulary="esm2",
        capacity=CAPACITY,
        max_seq_len=LONGEST,
        long="truncate",
        min_residues=1,
        on_invalid="unk",
        where=None,
        dedup="exact",
        split="train=0.99,valid=0.01",
        seed=0,
        max_seqs=127,
        length_multiple=1,
        packer="balanced",
    )


def _input(name: str, residues: np.ndarray) -> InputFlow:
    duplicates, short = len(residues) * 7 // 100, len(residues) // 100
    by_status = {
        "kept": len(residues) - duplicates - short,
        "invalid": 0,
        "too_short": short,
        "too_long": 0,
        "filtered": 0,
        "excluded": 0,
        "duplicate": duplicates,
    }
    return InputFlow(
        name=name,
        bytes=int(residues.sum() * 1.2),
        records=len(residues),
        residues=int(residues.sum()),
        by_status=by_status,
    )


def _lengths(residues: np.ndarray, kept: np.ndarray) -> Lengths:
    edges = [*range(0, 2_048 + 1, 16), max(2_048, int(residues.max())) + 1]
    return Lengths(
        records=len(residues),
        shortest=int(residues.min()),
        longest=int(residues.max()),
        mean=float(residues.mean()),
        percentiles={
            str(p): int(np.percentile(residues, p, method="inverted_cdf")) for p in PERCENTILES
        },
        histogram=counted(residues, edges),
        crop=LONGEST - 2,
        cropped=int((kept > LONGEST - 2).sum()),
        residues_cropped=int(np.maximum(kept - LONGEST + 2, 0).sum()),
    )


def _composition(rng: np.random.Generator, total: int) -> Composition:
    weights = np.array(_SHARES) * np.exp(rng.normal(0, 0.08, 20))
    shares = weights / weights.sum()
    letters = [
        LetterCount(
            letter=letter,
            kind="standard",
            count=int(total * share),
            share=float(share),
            background=wanted / 100,
        )
        for letter, share, wanted in zip(_LETTERS, shares, _SHARES, strict=True)
    ]
    letters += [
        LetterCount(
            letter=letter,
            kind="rare",
            count=9_000 // (i + 1),
            share=9_000 / (i + 1) / total,
            background=None,
        )
        for i, letter in enumerate("XBZUO")
    ]
    letters.append(
        LetterCount(letter="<unk>", kind="unknown", count=12, share=12 / total, background=None)
    )
    source = "UniProtKB/Swiss-Prot release statistics"
    return Composition(
        over="buckets",
        letters=tuple(letters),
        background_source=source,
        unknown_records=7,
        unknown_residues=12,
    )
